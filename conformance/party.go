package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/power"
	"github.com/go-locker/locker/conformance/internal/remote"
	"github.com/go-locker/locker/internal/history"
	"github.com/go-locker/locker/internal/stdio"
)

// party is a Locker under test, with its part in the story. Methods that return an error may be called
// by any goroutine; the others end the trial, and are the body's own.
type party struct {
	env  *env
	who  string
	name string
	ttl  time.Duration
	l    locker.Locker
	rw   RWLocker // nil: it takes no shares
	id   int      // in the record of a trial

	lasts *atomic.Pointer[time.Time] // until when the hold was to last, when it was granted or extended
}

// name is one that nobody else uses.
func (e *env) name() string { return freshName() }

func freshName() string { return fmt.Sprintf("conformance-%016x", rand.Uint64()) }

// party is a process of its own.
func (e *env) party(who, name string, ttl time.Duration) *party {
	if who == e.reader {
		return e.using(power.Sharing{Sharer: e.rwLocker(name, ttl)}, who, name, ttl)
	}
	l := e.h.New(e, name, ttl)
	if l == nil {
		e.failf("Harness.New returned nil")
	}
	return e.using(l, who, name, ttl)
}

// rwLocker is one of a process of its own.
func (e *env) rwLocker(name string, ttl time.Duration) RWLocker {
	l := e.h.RW(e, name, ttl)
	if l == nil {
		e.failf("Harness.RW returned nil")
	}
	return l
}

// using is a party with a Locker that there is.
func (e *env) using(l locker.Locker, who, name string, ttl time.Duration) *party {
	return &party{env: e, who: who, name: name, ttl: ttl, l: l, id: e.record.client(who, name, ttl), lasts: new(atomic.Pointer[time.Time])}
}

// call makes a call to the Locker, and ends the trial if it panics or does not return. It is made in
// the caller's own goroutine: there are Lockers that look at it.
func (p *party) call(op string, limit time.Duration, f func() error) (err error) {
	w := engine.Watchdog(limit, func() {
		p.env.end(fmt.Errorf("%s's %s did not return within %v", p.who, op, limit))
	})
	defer w.Stop()
	p.env.h.operations.Add(1)
	p.env.running.Store(true)
	since := p.env.record.now()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%s's %s panicked: %v\n%s", p.who, op, v, debug.Stack())
			p.env.end(err)
		}
		if op != history.OpToken {
			p.env.record.did(history.Event{Client: p.id, Op: op, Call: since}, err)
		}
	}()
	return f()
}

func (p *party) lock(ctx context.Context) error { return p.waits(ctx, "Lock", p.l.Lock) }

// waits calls Lock or RLock, which have to return soon after ctx ends. How long they may wait under
// a ctx without a deadline is the business of the scenario: here is only a bound for those that do
// not look.
func (p *party) waits(ctx context.Context, op string, lock func(context.Context) error) error {
	limit := p.env.patience
	if d, ok := ctx.Deadline(); ok {
		limit += max(0, time.Until(d))
	} else {
		limit += p.env.patience + p.env.long + p.env.prompt + p.env.grace
	}
	err := p.skipTooLong(p.noted(func() error {
		return p.call(op, limit, func() error { return lock(ctx) })
	}))
	if err == nil && p.env.record != nil {
		p.token()
	}
	return err
}

// skipTooLong skips the scenario if err says that the backend does not grant a TTL as long as p's.
// It grants that of the Harness.
func (p *party) skipTooLong(err error) error {
	if err != nil && p.ttl > p.env.ttl && (errors.Is(err, locker.ErrUnsupported) || strings.Contains(err.Error(), locker.ErrUnsupported.Error())) { // in a process
		p.env.end(skipped(fmt.Sprintf("it needs a TTL of %v: %v", p.ttl, err)))
	}
	return err
}

func (p *party) tryLock(ctx context.Context) error {
	l, ok := can[power.TryLocker](p.l, stdio.CanTry)
	if !ok {
		return skipped("the Locker has no TryLock")
	}
	return p.skipTooLong(p.noted(func() error {
		return p.call("TryLock", p.env.patience, func() error { return l.TryLock(ctx) })
	}))
}

func (p *party) unlock() error { return p.unlockWith(p.env.Context()) }

func (p *party) unlockWith(ctx context.Context) error {
	return p.call("Unlock", p.env.patience+p.ttl, func() error { return p.l.Unlock(ctx) })
}

func (p *party) extend() error { return p.extendWith(p.env.Context()) }

func (p *party) extendWith(ctx context.Context) error {
	return p.noted(func() error {
		return p.call("Extend", p.env.patience+p.ttl, func() error { return p.l.Extend(ctx) })
	})
}

func (p *party) token() (token uint64) {
	since := p.env.record.now()
	err := p.call("FencingToken", p.env.patience, func() error {
		token = p.l.FencingToken()
		return nil
	})
	p.env.record.did(history.Event{Client: p.id, Op: history.OpToken, Call: since, Token: token}, err)
	return token
}

// believes returns by what p holds, as far as it knows, or "". A program without tokens is asked to extend its hold.
func (p *party) believes() string {
	if r, ok := p.l.(*remote.Locker); ok && !r.Can(stdio.CanToken) {
		if p.extend() == nil {
			return "an Extend that succeeds"
		}
		return ""
	}
	if token := p.token(); token != 0 {
		return fmt.Sprintf("its token of %d", token)
	}
	return ""
}

// lost is nil, which blocks for ever, where the Locker has no Lost.
func (p *party) lost() <-chan struct{} {
	if l, ok := can[power.Loser](p.l, stdio.CanLost); ok {
		return l.Lost()
	}
	return nil
}

// deadline is the zero Time where the Locker has no Deadline.
func (p *party) deadline() time.Time {
	if l, ok := can[power.Deadliner](p.l, stdio.CanDeadline); ok {
		return l.Deadline()
	}
	return time.Time{}
}

// lockWithin is Lock that gives up after d.
func (p *party) lockWithin(d time.Duration) error { return p.within(d, p.lock) }

func (p *party) within(d time.Duration, lock func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(p.env.Context(), d)
	defer cancel()
	return lock(ctx)
}

// lockBy locks within limit, or ends the trial in doubt: after what is said, the lock is or becomes free.
func (p *party) lockBy(limit time.Duration, after string, args ...any) {
	start := time.Now()
	if err := p.lockWithin(limit); err != nil {
		p.env.doubtf("%s, but %s's Lock failed after %v: %v", fmt.Sprintf(after, args...), p.who, time.Since(start), err)
	}
}

// promptly takes a lock that nobody holds, without waiting for the expiry of something left behind.
func (p *party) promptly(after string) { p.lockBy(p.env.prompt, "%s, the lock is free", after) }

// lockFreed takes a lock that is free, or will be when something left behind has expired.
func (p *party) lockFreed(after string) {
	p.lockBy(p.ttl+slack(p.ttl), "%s, with a TTL of %v", after, p.ttl)
}

// start calls Lock in a goroutine.
func (p *party) start(ctx context.Context) <-chan error { return p.begin(ctx, p.lock) }

func (p *party) begin(ctx context.Context, lock func(context.Context) error) <-chan error {
	done := make(chan error, 1)
	p.env.spawn(func() { done <- lock(ctx) })
	return done
}

// granted waits for the success of a Lock that start has called, or ends the trial in doubt.
func (p *party) granted(done <-chan error, limit time.Duration, after string, args ...any) {
	what := fmt.Sprintf(after, args...)
	select {
	case err := <-done:
		if err != nil {
			p.env.doubtf("%s, but %s's Lock failed: %v", what, p.who, err)
		}
	case <-time.After(limit):
		p.env.doubtf("%s, but %v later %s, who waits, has no lock", what, limit, p.who)
	}
}

// take locks what is free.
func (p *party) take() {
	start := time.Now()
	if err := p.lockWithin(p.env.patience + p.env.grace); err != nil {
		p.env.doubtf("%s's Lock of a free lock: %v", p.who, err)
	}
	took, answer := int64(time.Since(start)), &p.env.pace.answer
	if last := answer.Load(); last == 0 || took < last {
		answer.Store(took)
	}
}

// release unlocks what is held.
func (p *party) release() { p.sound("Unlock", p.unlock()) }

// drop unlocks one of so many holds that a loss among them has to be expected.
func (p *party) drop() {
	if err := p.unlock(); !errors.Is(err, locker.ErrLost) {
		p.sound("Unlock", err)
	}
}

// prolong extends what is held.
func (p *party) prolong() { p.sound("Extend", p.extend()) }

// sound ends the trial unless err is nil. A hold may be reported lost before its time, now and then, and
// to a machine that pauses a server is silent.
func (p *party) sound(op string, err error) {
	switch {
	case errors.Is(err, remote.ErrMissing):
	case errors.Is(err, locker.ErrLost):
		p.env.doubtf("%s's %s of a hold that nobody ended: %v", p.who, op, err)
	case errors.Is(err, locker.ErrNotHeld):
		p.env.failf("%s's %s of its hold: %v; want nil", p.who, op, err)
	case err != nil:
		p.env.doubtf("%s's %s of its hold: %v; want nil", p.who, op, err)
	}
}

// want ends the trial unless err matches target. It asks nothing of what the program under test does not claim.
func (p *party) want(op string, err, target error) {
	if !errors.Is(err, target) && !errors.Is(err, remote.ErrMissing) {
		p.env.failf("%s's %s: %v; want an error that matches %q", p.who, op, says(err), target)
	}
}

// wantNoToken ends the trial unless the token is 0, as it is without a hold.
func (p *party) wantNoToken(when string) {
	if token := p.token(); token != 0 {
		p.env.failf("%s's token %s is %d; want 0", p.who, when, token)
	}
}

// says is err as a person reads it.
func says(err error) string {
	if err == nil {
		return "nil"
	}
	return fmt.Sprintf("error %q", err)
}

// awaitExpiry waits until the hold is over: the Locker says so, or its TTL and all allowance have passed.
func (p *party) awaitExpiry() {
	select {
	case <-p.lost():
	case <-time.After(p.ttl + coarse):
	}
}

// takeOver has the holder's lock expire, and b take it.
func (p *party) takeOver(b *party) {
	p.take()
	if err := b.lockWithin(p.ttl + p.env.patience); err != nil {
		p.env.doubtf("%s's Lock, after a holder whose TTL of %v is over: %v", b.who, p.ttl, err)
	}
}

// noted remembers, of a call that gave the hold its TTL, until when the hold lasts then: to its
// Deadline, or what is assured.
func (p *party) noted(call func() error) error {
	before := time.Now()
	err := call()
	if err == nil {
		until := p.deadline()
		if until.IsZero() {
			until = before.Add(history.Assured(p.ttl))
		}
		p.lasts.Store(&until)
	}
	return err
}

// try is TryLock, without which the scenario is skipped.
func (p *party) try() error {
	err := p.tryLock(p.env.Context())
	if skip, ok := errors.AsType[*skipError](err); ok {
		p.env.skip(skip.reason)
	}
	return err
}

// can returns the methods T of a Locker that not every one has. A program's has those that it
// claims.
func can[T any](l locker.Locker, capability string) (methods T, ok bool) {
	if r, is := l.(*remote.Locker); is && !r.Can(capability) {
		return methods, false
	}
	return power.Of[T](l)
}
