package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testwait"
	memorylock "github.com/go-locker/locker/memory"
)

// bare hides the powers that not every Locker has.
type bare struct{ locker.Locker }

// odd are correct Lockers that behave as few do.
func odd() map[string]func() conformance.Harness {
	return map[string]func() conformance.Harness{
		"slow":          func() conformance.Harness { return altered(slow(50 * time.Millisecond)) },
		"very slow":     verySlow,
		"gaps":          func() conformance.Harness { return altered(gaps) },
		"bare":          bareLocks,
		"spurious loss": func() conformance.Harness { return altered(spuriousLoss) },
		"in doubt":      func() conformance.Harness { return altered(doubtsUnlock) },
		"silenced":      func() conformance.Harness { return drivenBy(func(*patchedDriver) {}) },
		"naive":         func() conformance.Harness { return naiveLocks("", 0) },
		"coarse TTL":    func() conformance.Harness { return naiveLocks("", 500*time.Millisecond) },
		"unfair":        func() conformance.Harness { return altered(unfair) },
		"no queue":      polled,
		"short TTLs":    func() conformance.Harness { return altered(shortTTLs) },
		"a program":     func() conformance.Harness { return naiveProgram("", everything) },

		"a program that only tries":               func() conformance.Harness { return naiveProgram("", "try,unlock") },
		"a program that does one thing at a time": func() conformance.Harness { return naiveProgram("", "lock,unlock,extend,token,expire") },
	}
}

// fewOdd are those that show most, where there is no time for all.
var fewOdd = []string{"slow", "naive", "a program that only tries"}

// TestOddButCorrect has the suite judge correct Lockers, many at a time: the busier the machine, the
// better is it shown that the suite does not mistake a pause of it for a fault.
func TestOddButCorrect(t *testing.T) {
	var tasks []task
	for name, harness := range odd() {
		if !testwait.Thorough() && !slices.Contains(fewOdd, name) {
			continue
		}
		for _, s := range conformance.Scenarios() {
			if testwait.Thorough() || brief(s.Name) {
				tasks = append(tasks, task{name + "/" + s.Name, s, harness})
			}
		}
	}
	done := allTried(20, tasks)
	inDoubt := func(seen error) bool { return seen != nil && strings.HasPrefix(seen.Error(), "in ") } // see tally.verdict
	for _, d := range again(t, done, inDoubt) {
		if d.seen != nil && !conformance.IsSkip(d.seen) {
			t.Errorf("%s: %v", d.name, d.seen)
		}
	}
}

// shortTTLs refuses all but the shortest, as a ZooKeeper of short sessions does.
func shortTTLs(_ conformance.TB, p *patched, _ *world) {
	if p.ttl <= memory().TTL {
		return
	}
	p.lock = func(context.Context) error { return fmt.Errorf("%w: TTL %v", locker.ErrUnsupported, p.ttl) }
	p.tryLock = p.lock
}

// A backend that grants no long TTL breaks no promise: scenarios that need one are skipped.
func TestOddButCorrect_ofShortTTLs(t *testing.T) {
	t.Parallel()
	skipped := 0
	for _, s := range conformance.Scenarios() {
		if !strings.Contains(s.Name, "expire") && !strings.Contains(s.Name, "another process") {
			continue
		}
		r := conformance.Examine(t, s, altered(shortTTLs))
		require.NotEqual(t, conformance.Broken, r.Outcome, "%s: %s", s.Name, r.Seen)
		if strings.Contains(r.Seen, "not supported by the backend: TTL") {
			skipped++
		}
	}
	require.NotZero(t, skipped)
}

// verySlow needs a third of its TTL for every request.
func verySlow() conformance.Harness {
	h := altered(slow(350 * time.Millisecond))
	h.TTL = time.Second
	return h
}

// slow takes up to most, and not much less, for every request.
func slow(most time.Duration) func(conformance.TB, *patched, *world) {
	return func(_ conformance.TB, p *patched, _ *world) {
		after := func(f func(context.Context) error) func(context.Context) error {
			return func(ctx context.Context) error {
				select {
				case <-time.After(most - rand.N(30*time.Millisecond)):
				case <-ctx.Done():
				}
				return f(ctx)
			}
		}
		p.lock, p.tryLock, p.unlock, p.extend = after(p.lock), after(p.tryLock), after(p.unlock), after(p.extend)
	}
}

// gaps has tokens a thousand apart, near the end of their range.
func gaps(_ conformance.TB, p *patched, _ *world) {
	token := p.token
	p.token = func() uint64 {
		if n := token(); n != 0 {
			return n*1000 + 1<<62
		}
		return 0
	}
}

func bareLocks() conformance.Harness {
	h := memory()
	newLock := h.New
	h.New = func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
		return bare{newLock(t, name, ttl)}
	}
	h.Client = nil
	return h
}

// polled hides that memory has a queue, so that the core polls, with pauses of up to 250 ms.
func polled() conformance.Harness {
	h := drivenBy(func(d *patchedDriver) { d.request = func(req *driver.Request) { req.Wake = nil } })
	h.Promises = maps.Clone(memorylock.NewDriver().Guarantees())
	for _, ofAQueue := range []locker.Guarantee{locker.Ordered, locker.Woken} {
		delete(h.Promises, ofAQueue)
	}
	return h
}

// spuriousLoss says of one hold in fifty that it is lost, as one that is careful after an error
// does. Nobody else gets the lock before its Unlock.
func spuriousLoss(_ conformance.TB, p *patched, _ *world) {
	inner := p.Mutex
	lost := false // the current hold; its Unlock is still to come
	gone := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return lost
	}
	end := func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		was := lost
		lost = false
		return was
	}
	over := make(chan struct{})
	close(over)
	locks := func(f func(context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			if gone() {
				return locker.ErrLost
			}
			err := f(ctx)
			if gone() && err == nil { // another goroutine's lost hold awaits its Unlock
				_ = inner.Unlock(ctx)
				return locker.ErrLost
			}
			if err == nil && rand.N(50) == 0 {
				p.mu.Lock()
				lost = true
				p.mu.Unlock()
			}
			return err
		}
	}
	p.lock, p.tryLock = locks(inner.Lock), locks(inner.TryLock)
	p.unlock = func(ctx context.Context) error {
		was := end()
		if err := inner.Unlock(ctx); err != nil || !was {
			return err
		}
		return locker.ErrLost
	}
	p.extend = func(ctx context.Context) error {
		if gone() {
			return locker.ErrLost
		}
		return inner.Extend(ctx)
	}
	p.token = func() uint64 {
		if gone() {
			return 0
		}
		return inner.FencingToken()
	}
	p.lost = func() <-chan struct{} {
		if gone() {
			return over
		}
		return of(inner, (*locker.Hold).Lost)()
	}
}

// doubtsUnlock says ErrLost of one Unlock in fifty that has ended the hold, as where the answer was lost.
func doubtsUnlock(_ conformance.TB, p *patched, _ *world) {
	unlock := p.unlock
	p.unlock = func(ctx context.Context) error {
		err := unlock(ctx)
		if err == nil && rand.N(50) == 0 {
			return locker.ErrLost
		}
		return err
	}
}

// unfair has waiters look again at times of their own, so that who came last may be first.
func unfair(_ conformance.TB, p *patched, _ *world) { polls(p, 100*time.Millisecond) }

// polls has Lock look again after pauses of up to pause.
func polls(p *patched, pause time.Duration) {
	inner := p.Mutex
	p.lock = func(ctx context.Context) error {
		for {
			err := inner.TryLock(ctx)
			if !errors.Is(err, locker.ErrHeld) || ctx.Err() != nil {
				return err
			}
			select {
			case <-time.After(rand.N(pause)):
			case <-ctx.Done():
				return errors.Join(ctx.Err(), context.Cause(ctx), err)
			}
		}
	}
}

// deadlineless has no Deadline once a hold is lost, as a program that answers not-held, and tells
// of the loss a little late.
func deadlineless(h conformance.Harness) conformance.Harness {
	forgets := func(l locker.Locker) locker.Locker {
		p := patch(l.(*locker.Mutex), h.TTL, "")
		p.deadline = func() time.Time {
			select {
			case <-of(p.Mutex, (*locker.Hold).Lost)():
				return time.Time{}
			default:
				return of(p.Mutex, (*locker.Hold).Deadline)()
			}
		}
		p.lost = func() <-chan struct{} {
			inner, late := of(p.Mutex, (*locker.Hold).Lost)(), make(chan struct{})
			go func() {
				<-inner
				time.Sleep(100 * time.Millisecond)
				close(late)
			}()
			return late
		}
		return p
	}
	inner := h
	h.New = func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
		return forgets(inner.New(t, name, ttl))
	}
	h.Client = func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
		mutex := inner.Client(t, ttl, renew)
		return func(name string) locker.Locker { return forgets(mutex(name)) }
	}
	return h
}

// A Deadline that is asked for after the loss is no Deadline that Lost has missed.
func TestOdd_noDeadlineAfterALoss(t *testing.T) {
	for _, name := range []string{"Lost fires in time though the server is silent", "Lost fires no later than Deadline"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, try(find(t, name), deadlineless(drivenBy(func(*patchedDriver) {}))))
		})
	}
}
