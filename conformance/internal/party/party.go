package party

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

// Party is a Locker under test, with its role in a scenario. Methods that return an error may be
// called by any goroutine; the others may end the trial, and only the scenario's body calls them.
type Party struct {
	Env    *Env
	Who    string
	Name   string
	TTL    time.Duration
	Locker locker.Locker
	RW     power.Sharer // nil: it takes no shares
	ID     int          // in the record of a trial

	// The assured end of the hold, as of its grant or last Extend.
	lasts *atomic.Pointer[time.Time]
}

// Name is FreshName.
func (e *Env) Name() string { return FreshName() }

// FreshName returns a name that nobody else uses.
func FreshName() string { return fmt.Sprintf("conformance-%016x", rand.Uint64()) }

// Party makes a party with a Locker of Harness.New, which has a client of its own, as in a process
// of its own.
func (e *Env) Party(who, name string, ttl time.Duration) *Party {
	if who == e.Reader {
		return e.Using(power.Sharing{Sharer: e.rwLocker(name, ttl)}, who, name, ttl)
	}
	l := e.Harness.New(Making{e}, name, ttl)
	if l == nil {
		e.Failf("Harness.New returned nil")
	}
	return e.Using(l, who, name, ttl)
}

// rwLocker makes an RWLocker with a client of its own.
func (e *Env) rwLocker(name string, ttl time.Duration) power.Sharer {
	l := e.Harness.RW(Making{e}, name, ttl)
	if l == nil {
		e.Failf("Harness.RW returned nil")
	}
	return l
}

// Using makes a party with an existing Locker.
func (e *Env) Using(l locker.Locker, who, name string, ttl time.Duration) *Party {
	return &Party{
		Env: e, Who: who, Name: name, TTL: ttl, Locker: l,
		ID: e.Record.client(who, name, ttl), lasts: new(atomic.Pointer[time.Time]),
	}
}

// Call calls the Locker, and ends the trial if the call panics or does not return within limit. It
// runs in the caller's goroutine, which some Lockers inspect.
func (p *Party) Call(op string, limit time.Duration, f func() error) (err error) {
	w := engine.Watchdog(limit, func() {
		seen := fmt.Errorf("%s's %s did not return within %v", p.Who, op, limit)
		// On a busy machine a program may have to wait.
		p.Env.Decide(&engine.Unless{Quiet: seen, Seen: seen})
	})
	defer w.Stop()
	p.Env.Harness.Operations.Add(1)
	p.Env.running.Store(true)
	since := p.Env.Record.Time()
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%s's %s panicked: %v\n%s", p.Who, op, v, debug.Stack())
			p.Env.Decide(err)
		}
		if op != history.OpToken {
			p.Env.Record.did(history.Event{Client: p.ID, Op: op, Call: since}, err)
		}
	}()
	return f()
}

// Lock calls the Locker's Lock. This and the other calls of the Locker have a time limit.
func (p *Party) Lock(ctx context.Context) error { return p.waits(ctx, "Lock", p.Locker.Lock) }

// waits calls Lock or RLock, which have to return soon after ctx ends. If ctx has no deadline the
// scenario bounds the wait; the limit here is for scenarios that do not.
func (p *Party) waits(ctx context.Context, op string, lock func(context.Context) error) error {
	limit := p.Env.Patience
	if d, ok := ctx.Deadline(); ok {
		limit += max(0, time.Until(d))
	} else {
		limit += p.Env.Patience + p.Env.Long + p.Env.Prompt + p.Env.Grace
	}
	err := p.skipTooLong(p.Noted(func() error {
		return p.Call(op, limit, func() error { return lock(ctx) })
	}))
	if err == nil && p.Env.Record != nil {
		p.Token()
	}
	return err
}

// skipTooLong skips the scenario if err says that the backend grants no TTL as long as p's, and p's
// is longer than the Harness's.
func (p *Party) skipTooLong(err error) error {
	unsupported := locker.ErrUnsupported
	if err != nil && p.TTL > p.Env.TTL &&
		// A process returns only the text of an error.
		(errors.Is(err, unsupported) || strings.Contains(err.Error(), unsupported.Error())) {
		p.Env.Decide(engine.Skipped(fmt.Sprintf("it needs a TTL of %v: %v", p.TTL, err)))
	}
	return err
}

// TryLock returns a Skip if the Locker has no TryLock.
func (p *Party) TryLock(ctx context.Context) error {
	l, ok := Can[power.TryLocker](p.Locker, stdio.CanTry)
	if !ok {
		return engine.Skipped("the Locker has no TryLock")
	}
	return p.skipTooLong(p.Noted(func() error {
		return p.Call("TryLock", p.Env.Patience, func() error { return l.TryLock(ctx) })
	}))
}

// Unlock calls the Locker's Unlock.
func (p *Party) Unlock() error { return p.UnlockWith(p.Env.Context()) }

// UnlockWith is Unlock with a ctx.
func (p *Party) UnlockWith(ctx context.Context) error {
	return p.Call("Unlock", p.Env.Patience+p.TTL, func() error { return p.Locker.Unlock(ctx) })
}

// Extend calls the Locker's Extend.
func (p *Party) Extend() error { return p.ExtendWith(p.Env.Context()) }

// ExtendWith is Extend with a ctx.
func (p *Party) ExtendWith(ctx context.Context) error {
	return p.Noted(func() error {
		return p.Call("Extend", p.Env.Patience+p.TTL, func() error { return p.Locker.Extend(ctx) })
	})
}

// Token returns the fencing token of the hold.
func (p *Party) Token() (token uint64) {
	since := p.Env.Record.Time()
	err := p.Call("FencingToken", p.Env.Patience, func() error {
		token = p.Locker.FencingToken()
		return nil
	})
	p.Env.Record.did(history.Event{Client: p.ID, Op: history.OpToken, Call: since, Token: token}, err)
	return token
}

// Believes returns the evidence by which p believes that it holds the lock, or "": its token or,
// for a program without tokens, a successful Extend.
func (p *Party) Believes() string {
	if r, ok := p.Locker.(*remote.Locker); ok && !r.Can(stdio.CanToken) {
		if p.Extend() == nil {
			return "an Extend that succeeds"
		}
		return ""
	}
	if token := p.Token(); token != 0 {
		return fmt.Sprintf("its token of %d", token)
	}
	return ""
}

// Lost returns nil, which blocks for ever, if the Locker has no Lost.
func (p *Party) Lost() <-chan struct{} {
	if l, ok := Can[power.Loser](p.Locker, stdio.CanLost); ok {
		return l.Lost()
	}
	return nil
}

// Deadline returns the zero Time if the Locker has no Deadline.
func (p *Party) Deadline() time.Time {
	if l, ok := Can[power.Deadliner](p.Locker, stdio.CanDeadline); ok {
		return l.Deadline()
	}
	return time.Time{}
}

// LockWithin is Lock that gives up after d.
func (p *Party) LockWithin(d time.Duration) error { return p.within(d, p.Lock) }

func (p *Party) within(d time.Duration, lock func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(p.Env.Context(), d)
	defer cancel()
	return lock(ctx)
}

// LockBy locks within limit, or ends the trial in doubt. after says why the lock is or becomes
// free. LockBy returns p, and so do other methods that lock: most scenarios then release.
func (p *Party) LockBy(limit time.Duration, after string, args ...any) *Party {
	start := time.Now()
	if err := p.LockWithin(limit); err != nil {
		p.Env.Doubtf("%s, but %s's Lock failed after %v: %v", fmt.Sprintf(after, args...), p.Who, time.Since(start), err)
	}
	return p
}

// Promptly takes a lock that nobody holds, without waiting for the expiry of something left behind.
func (p *Party) Promptly(after string) *Party {
	return p.LockBy(p.Env.Prompt, "%s, the lock is free", after)
}

// LockFreed takes a lock that is free, or will be when something left behind has expired.
func (p *Party) LockFreed(after string) *Party {
	return p.LockBy(p.TTL+Slack(p.TTL), "%s, with a TTL of %v", after, p.TTL)
}

// Start calls Lock in a goroutine.
func (p *Party) Start(ctx context.Context) <-chan error { return p.begin(ctx, p.Lock) }

func (p *Party) begin(ctx context.Context, lock func(context.Context) error) <-chan error {
	done := make(chan error, 1)
	p.Env.Spawn(func() { done <- lock(ctx) })
	return done
}

// Interrupted makes a call, and cancels its ctx when the call should be waiting, with the cause
// ErrStop. It returns the error of the call, and whether ctx ended first: a client's own timeout
// may be shorter.
func (p *Party) Interrupted(op string, call func(context.Context) error) (err error, cancelled bool) {
	ctx, cancel := context.WithCancelCause(p.Env.Context())
	defer cancel(nil)
	done := p.begin(ctx, call)
	select {
	case err = <-done:
		return err, false
	case <-time.After(p.Env.Settle()):
	}
	cancel(ErrStop)
	select {
	case err = <-done:
	case <-time.After(p.Env.Prompt):
		p.Env.Doubtf("%s's %s had not returned %v after its ctx ended", p.Who, op, p.Env.Prompt)
	}
	return err, true
}

// Ended reports whether ctx had ended when a call returned err: a client may give up a little
// before the deadline.
func Ended(ctx context.Context, err error) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && errors.Is(err, context.DeadlineExceeded) && time.Until(deadline) < 2*Settle
}

// NotTaken ends the trial if err is nil, or ErrHeld: p tried to take a free lock, which cannot have
// succeeded, for the given reason.
func (p *Party) NotTaken(op string, err error, reason string) {
	switch {
	case err == nil:
		p.Env.Failf("%s's %s succeeded though %s", p.Who, op, reason)
	case errors.Is(err, locker.ErrHeld):
		p.Env.Failf("%s's %s, when nobody had the lock and %s: %v; want no ErrHeld", p.Who, op, reason, err)
	}
}

// Granted ends the trial in doubt unless a Lock that Start called succeeds within limit.
func (p *Party) Granted(done <-chan error, limit time.Duration, after string, args ...any) *Party {
	what := fmt.Sprintf(after, args...)
	select {
	case err := <-done:
		if err != nil {
			p.Env.Doubtf("%s, but %s's Lock failed: %v", what, p.Who, err)
		}
	case <-time.After(limit):
		p.Env.Doubtf("%s, but %v later %s, who waits, has no lock", what, limit, p.Who)
	}
	return p
}

// Take takes a free lock, and records the least latency of that in Pace.
func (p *Party) Take() {
	start := time.Now()
	if err := p.LockWithin(p.Env.Patience + p.Env.Grace); err != nil {
		p.Env.Doubtf("%s's Lock of a free lock: %v", p.Who, err)
	}
	took, answer := int64(time.Since(start)), &p.Env.Pace.Answer
	if last := answer.Load(); last == 0 || took < last {
		answer.Store(took)
	}
}

// Connect takes and releases a free lock, after which p has a connection.
func (p *Party) Connect() {
	p.Take()
	p.Release()
}

// Release unlocks, and ends the trial if that fails.
func (p *Party) Release() { p.Sound("Unlock", p.Unlock()) }

// Drop is Release of a hold that may be lost, such as one of very many.
func (p *Party) Drop() {
	if err := p.Unlock(); !errors.Is(err, locker.ErrLost) {
		p.Sound("Unlock", err)
	}
}

// Prolong extends p's hold, and ends the trial if that fails.
func (p *Party) Prolong() *Party {
	p.Sound("Extend", p.Extend())
	return p
}

// Sound ends the trial unless err, of op on p's hold, is nil. All but ErrNotHeld leave it in doubt:
// now and then a hold may be reported lost early, and to a paused machine a server seems silent.
func (p *Party) Sound(op string, err error) {
	switch {
	case errors.Is(err, remote.ErrMissing):
	case errors.Is(err, locker.ErrLost):
		p.Env.Doubtf("%s's %s of a hold that nobody ended: %v", p.Who, op, err)
	case errors.Is(err, locker.ErrNotHeld):
		p.Env.Failf("%s's %s of its hold: %v; want nil", p.Who, op, err)
	case err != nil:
		p.Env.Doubtf("%s's %s of its hold: %v; want nil", p.Who, op, err)
	}
}

// Want ends the trial unless err matches target, or the program under test does not claim to
// support op. An error that is none of the contract's leaves it in doubt: on a busy machine a
// client may give up just then.
func (p *Party) Want(op string, err, target error) {
	fail := p.Env.Failf
	switch {
	case errors.Is(err, target), errors.Is(err, remote.ErrMissing):
		return
	case ErrKindOf(err) == history.OtherErr:
		fail = p.Env.Doubtf
	}
	fail("%s's %s: %v; want an error that matches %q", p.Who, op, Says(err), target)
}

// WantEnded ends the trial in doubt unless err, of a call whose ctx has ended, matches all targets:
// the Locker's own timeout may have ended the call just before.
func (p *Party) WantEnded(op string, err error, targets ...error) {
	for _, target := range targets {
		if !errors.Is(err, target) {
			p.Env.Doubtf("%s's %s, whose ctx has ended: %v; want an error that matches %q", p.Who, op, Says(err), target)
		}
	}
}

// KeepsToken ends the trial unless the token of p's hold is what it was.
func (p *Party) KeepsToken(was uint64, after string, args ...any) {
	if now := p.Token(); now != was {
		p.Prolong() // is it lost?
		p.Env.Failf("%s's token was %d, and %s it is %d", p.Who, was, fmt.Sprintf(after, args...), now)
	}
}

// Served ends the trial in doubt if a Lock that Start called fails.
func (p *Party) Served(done <-chan error) {
	if err := <-done; err != nil {
		p.Env.Doubtf("%s's Lock: %v", p.Who, err)
	}
}

// WantNoToken ends the trial unless the token is 0, as it is without a hold.
func (p *Party) WantNoToken(when string) {
	if token := p.Token(); token != 0 {
		p.Env.Failf("%s's token %s is %d; want 0", p.Who, when, token)
	}
}

// Says formats err for a message.
func Says(err error) string {
	if err == nil {
		return "nil"
	}
	return fmt.Sprintf("error %q", err)
}

// AwaitExpiry waits until the hold has expired: until Lost fires, or the TTL and all tolerance have
// passed.
func (p *Party) AwaitExpiry() {
	select {
	case <-p.Lost():
	case <-time.After(p.TTL + Coarse):
	}
}

// TakeOver has p take the lock, the hold expire, and b take the lock.
func (p *Party) TakeOver(b *Party) {
	p.Take()
	if err := b.LockWithin(p.TTL + p.Env.Patience); err != nil {
		p.Env.Doubtf("%s's Lock, after a holder whose TTL of %v is over: %v", b.Who, p.TTL, err)
	}
}

// Noted makes a call that grants or extends p's hold, and records the new end of the hold: its
// Deadline or, without one, the end that a TTL assures.
func (p *Party) Noted(call func() error) error {
	before := time.Now()
	err := call()
	if err == nil {
		until := p.Deadline()
		if until.IsZero() {
			until = before.Add(history.Assured(p.TTL))
		}
		p.lasts.Store(&until)
	}
	return err
}

// Try is TryLock. It skips the scenario if the Locker has no TryLock.
func (p *Party) Try() error {
	err := p.TryLock(p.Env.Context())
	if skip, ok := errors.AsType[*engine.Skip](err); ok {
		p.Env.Skip(skip.Reason)
	}
	return err
}

// Can returns the optional methods T of a Locker. A program's Locker has the methods that the
// program claims.
func Can[T any](l locker.Locker, capability string) (methods T, ok bool) {
	if r, is := l.(*remote.Locker); is && !r.Can(capability) {
		return methods, false
	}
	return power.Of[T](l)
}
