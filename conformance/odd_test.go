package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
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
		"a server":      func() conformance.Harness { return served("") },
		"no order":      func() conformance.Harness { return served("nobody queues") },
		"coarse TTL":    coarseTTL,
		"unfair":        func() conformance.Harness { return altered(unfair) },
		"no queue":      polled,
		"short TTLs":    func() conformance.Harness { return altered(shortTTLs) },
		"a program":     func() conformance.Harness { return aProgram("", everything) },

		"a program that only tries":               func() conformance.Harness { return aProgram("", "try,unlock") },
		"a program that does one thing at a time": func() conformance.Harness { return aProgram("", "lock,unlock,extend,token,expire") },
	}
}

// fewOdd are those that show most, where there is no time for all.
var fewOdd = []string{"slow", "a server", "a program that only tries"}

// TestOddButCorrect has the suite judge correct Lockers, many at a time: the busier the machine,
// the better is it shown that the suite does not mistake a pause of it for a fault.
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
	// See Tally.verdict.
	inDoubt := func(seen error) bool { return seen != nil && strings.HasPrefix(seen.Error(), "in ") }
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

// slow takes up to most, and not much less, for every request. Its Lock gives up a little before
// the deadline of ctx, as one whose server knows the deadline.
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
		early := func(ctx context.Context) error {
			if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) > 2*most {
				var cancel context.CancelFunc
				ctx, cancel = context.WithDeadline(ctx, deadline.Add(-most/2))
				defer cancel()
			}
			return p.Mutex.Lock(ctx)
		}
		p.lock, p.tryLock, p.unlock, p.extend = after(early), after(p.tryLock), after(p.unlock), after(p.extend)
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

// unwoken is a Driver that hides that memory has a queue, so that the core polls, with pauses of up
// to 250 ms.
type unwoken struct{ driver.Driver }

func (d unwoken) Claim(req driver.Request) driver.Claim {
	req.Wake = nil
	return d.Driver.Claim(req)
}

func polled() conformance.Harness {
	in := space()
	h := memory()
	h.Promises = maps.Clone(memorylock.NewDriver().Guarantees())
	for _, ofAQueue := range []locker.Guarantee{locker.Ordered, locker.Woken} {
		delete(h.Promises, ofAQueue)
	}
	h.Client, h.RW = nil, nil
	h.New = func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
		d := unwoken{memorylock.NewDriver(memorylock.InSpace(in))}
		return clientOf(t, d, locker.WithTTL(ttl), locker.WithoutRenewal()).Mutex(name)
	}
	return h
}

// coarseTTL is that of a server which expires holds late.
func coarseTTL() conformance.Harness {
	s := newServer("")
	s.store.late = 500 * time.Millisecond
	return s.harness()
}

// spuriousLoss says of one hold in fifty that it is lost, as one that is careful after an error
// does. Nobody else gets the lock before its Unlock.
func spuriousLoss(_ conformance.TB, p *patched, _ *world) {
	var lost atomic.Bool // the current hold; its Unlock is still to come
	over := make(chan struct{})
	close(over)
	for _, m := range []*method{&p.lock, &p.tryLock} {
		inner := *m
		*m = func(ctx context.Context) error {
			if lost.Load() {
				return locker.ErrLost
			}
			err := inner(ctx)
			if lost.Load() && err == nil { // another goroutine's lost hold awaits its Unlock
				_ = p.Mutex.Unlock(ctx)
				return locker.ErrLost
			}
			if err == nil && rand.N(50) == 0 {
				lost.Store(true)
			}
			return err
		}
	}
	p.unlock = func(ctx context.Context) error {
		was := lost.Swap(false)
		if err := p.Mutex.Unlock(ctx); err != nil || !was {
			return err
		}
		return locker.ErrLost
	}
	p.extend = func(ctx context.Context) error {
		if lost.Load() {
			return locker.ErrLost
		}
		return p.Mutex.Extend(ctx)
	}
	p.token = func() uint64 {
		if lost.Load() {
			return 0
		}
		return p.Mutex.FencingToken()
	}
	p.lost = func() <-chan struct{} {
		if lost.Load() {
			return over
		}
		return told(p.RWMutex).Lost()
	}
}

// doubtsUnlock says ErrLost of one Unlock in fifty that has ended the hold, as where the answer was
// lost.
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
func unfair(_ conformance.TB, p *patched, _ *world) {
	polls(p, func() time.Duration { return rand.N(100 * time.Millisecond) })
}

// polls has Lock look again after pauses.
func polls(p *patched, pause func() time.Duration) {
	inner := p.Mutex
	p.lock = func(ctx context.Context) error {
		for {
			err := inner.TryLock(ctx)
			if !errors.Is(err, locker.ErrHeld) || ctx.Err() != nil {
				return err
			}
			select {
			case <-time.After(pause()):
			case <-ctx.Done():
				return errors.Join(ctx.Err(), context.Cause(ctx), err)
			}
		}
	}
}

// A Deadline that is asked for after the loss is no Deadline that Lost has missed. A program that
// answers not-held has none once a hold is lost, and may tell of the loss a little late.
func TestOdd_noDeadlineAfterALoss(t *testing.T) {
	for _, name := range []string{"Lost fires in time though the server is silent", "Lost fires no later than Deadline"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer("")
			s.alter = func(p *patched) {
				p.deadline = func() time.Time {
					select {
					case <-told(p.RWMutex).Lost():
						return time.Time{}
					default:
						return told(p.RWMutex).Deadline()
					}
				}
				p.lost = func() <-chan struct{} {
					return later(told(p.RWMutex).Lost(), func() { time.Sleep(100 * time.Millisecond) })
				}
			}
			require.NoError(t, try(find(t, name), s.harness()))
		})
	}
}

// TestReadWrite: read-write locks keep all promises of one, whoever goes first.
func TestReadWrite(t *testing.T) {
	var tasks []task
	for _, flaw := range []string{"", "nobody queues", "writers pass readers", "readers are admitted while a writer is first"} {
		for _, s := range conformance.Scenarios() {
			if slices.Contains(s.Needs, "RW") {
				tasks = append(tasks, task{flaw + ": " + s.Name, s, func() conformance.Harness {
					if h := served(flaw); flaw != "" {
						return h
					}
					return promising(locker.Ordered, served(""))
				}})
			}
		}
	}
	for _, d := range again(t, allTried(30, tasks), func(seen error) bool { return seen != nil && !conformance.IsSkip(seen) }) {
		if d.seen != nil && !conformance.IsSkip(d.seen) {
			t.Errorf("%q: %v", d.name, d.seen)
		}
	}
}

// TestShares_ofLockersThatHaveNone are skipped, and say so.
func TestShares_ofLockersThatHaveNone(t *testing.T) {
	h := served("")
	through := h.Faults.Through
	h.Faults.Through = func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
		return bare{through(t, name, ttl, via)}
	}
	process := h.Faults.Process
	h.Faults.Process = func(t conformance.TB) *exec.Cmd {
		cmd := process(t)
		cmd.Env = append(cmd.Env, servedBare+"=1")
		return cmd
	}
	for _, s := range conformance.Scenarios() {
		needs := func(field string) bool { return slices.Contains(s.Needs, field) }
		if !needs("RW") || !needs("Faults.Through") && !needs("Faults.Process") || strings.HasPrefix(s.Name, "a writer that is ") {
			continue // Harness.RW is enough
		}
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			if err := try(s, h); !conformance.IsSkip(err) {
				t.Errorf("%v; want a skip", err)
			}
		})
	}
}

// A correct Locker may return an error of its own, once: its client's timeout may end at the moment
// of a cancellation, or a busy machine may keep the server from answering.
func TestOddButCorrect_ofAnErrorOnce(t *testing.T) {
	for _, name := range []string{
		"Lock returns soon after ctx ends though the server is silent",
		"Lock returns soon after the deadline of ctx while it waits",
		"the error of an interrupted Lock matches ctx.Err and its cause",
		"an outage is an error or a wait, never ErrHeld",
		"TryLock of a held lock says ErrHeld",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var once atomic.Bool
			s := newServer("")
			s.alter = func(p *patched) {
				for _, m := range []*method{&p.lock, &p.tryLock} {
					after(m, func(ctx context.Context, err error) error {
						if err != nil && (ctx.Err() != nil || errors.Is(err, locker.ErrHeld)) && !once.Swap(true) {
							return errors.New("no answer in time")
						}
						return err
					})
				}
			}
			r := conformance.Examine(t, find(t, name), s.harness())
			require.True(t, once.Load())
			require.Equal(t, conformance.Kept, r.Outcome, r.Seen)
		})
	}
}
