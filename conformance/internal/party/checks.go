package party

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/power"
	"github.com/go-locker/locker/conformance/internal/remote"
	"github.com/go-locker/locker/internal/stdio"
)

// Early ends the trial: b's Lock returned err, though a holds the lock and ctx has not ended.
func (e *Env) Early(a, b *Party, err error) {
	if err == nil {
		a.Overlap(b)
	}
	e.Doubtf("B's Lock, before its ctx ended: %v; want it to wait", err)
}

// KeepsWaiting ends the trial if b's Lock returns within d, though p holds the lock.
func (p *Party) KeepsWaiting(b *Party, done <-chan error, d time.Duration) {
	p.keepsWaiting(b, "Lock", done, d)
}

func (p *Party) keepsWaiting(b *Party, op string, done <-chan error, d time.Duration) {
	select {
	case err := <-done:
		if err == nil {
			p.OverlapOf(op, b)
		}
		p.Env.Doubtf("%s's %s, before its ctx ended: %v; want it to wait", b.Who, op, err)
	case <-time.After(d):
	}
}

// Gone ends the trial unless a cancelled Lock of p returns, with an error.
func (e *Env) Gone(p *Party, done <-chan error) {
	select {
	case err := <-done:
		if err == nil {
			e.Doubtf("%s's Lock succeeded while another held the lock", p.Who)
		}
	case <-time.After(e.Patience):
		e.Doubtf("%s's Lock had not returned %v after its ctx ended", p.Who, e.Patience)
	}
}

// Still ends the trial unless p still holds the lock.
func (p *Party) Still(after string) {
	switch err := p.Extend(); {
	case errors.Is(err, locker.ErrNotHeld):
		p.Env.Failf("%s, and %s's Extend says %v", after, p.Who, err)
	case err != nil && !errors.Is(err, remote.ErrMissing): // for want of time, or of a connection
		p.Env.Doubtf("%s, and %s's Extend says %v", after, p.Who, err)
	}
}

// Harmless ends the trial if a call of a former holder harms the hold of its successor.
func (e *Env) Harmless(op string, do func(*Party) error, watch time.Duration) {
	a, b := e.Rivals(e.TTL, e.Long)
	a.TakeOver(b)
	e.Steady(a, b, op, do, watch)
}

// Steady has a, from whom b has taken over, make a call, and ends the trial unless b's hold lasts.
// A third party tries to get the lock for the time watch.
func (e *Env) Steady(a, b *Party, op string, do func(*Party) error, watch time.Duration) {
	c := e.Party("C", b.Name, e.Long)
	token := b.Token()
	returned := do(a)
	if err := c.LockWithin(watch); err == nil {
		e.Robbed(b, op, returned)
	}
	if now := b.Token(); now != token && now != 0 {
		e.Failf("B's token was %d, and after A's %s it is %d", token, op, now)
	}
	b.Prolong().Release()
}

// Robbed ends the trial: after op of the former holder, a third party got the lock that b holds.
// b's Locker may or may not have noticed the loss.
func (e *Env) Robbed(b *Party, op string, returned error) {
	if err := b.Extend(); err != nil {
		e.Doubtf("B held the lock; A, who had lost it, called %s (%s); then C's Lock succeeded, and B's Extend says %s",
			op, Says(returned), Says(err))
	}
	e.Failf("B held the lock; A, who had lost it, called %s (%s); then C's Lock succeeded, while B's Extend still does", op, Says(returned))
}

// UnlockFails ends the trial unless p's Unlock returns an error within one TTL of start. though
// says why the backend cannot have confirmed it.
func (p *Party) UnlockFails(start time.Time, though string) {
	err := p.Unlock()
	switch took := time.Since(start); {
	case err == nil:
		p.Env.Failf("%s's Unlock said nil though %s", p.Who, though)
	case took > p.TTL+Pause:
		p.Env.Doubtf("%s's Unlock, though %s, took %v, with a TTL of %v", p.Who, though, took, p.TTL)
	}
	p.WantNoToken("after Unlock, which returned " + Says(err))
}

// PassesOver makes b, the first of two waiters, fail while p holds the lock, and ends the trial
// unless c, the second, gets the lock within one TTL of b.
func (p *Party) PassesOver(b, c *Party, fail func(), what string) {
	e := p.Env
	p.Take()
	b.Start(e.Context())
	time.Sleep(3 * e.Settle()) // it waits
	served := c.Start(e.Context())
	time.Sleep(e.Settle())
	fail()
	p.Release()
	limit := b.TTL + Slack(b.TTL) + 2*time.Second // b may have been granted the lock
	c.Granted(served, limit, "A has unlocked, and B, which waited before it with a TTL of %v, %s", b.TTL, what)
	c.Release()
}

// Tells skips the scenario unless the Locker has Lost and Deadline.
func (p *Party) Tells() {
	if _, ok := Can[power.Loser](p.Locker, stdio.CanLost); !ok {
		p.Env.Skip("the Locker has no Lost")
	}
	p.TellsDeadline()
}

// TellsDeadline skips the scenario unless the Locker has a Deadline.
func (p *Party) TellsDeadline() {
	if _, ok := Can[power.Deadliner](p.Locker, stdio.CanDeadline); !ok {
		p.Env.Skip("the Locker has no Deadline")
	}
}

// LostBy ends the trial unless Lost fires by the deadline, give or take a pause of this machine.
// The deadline was read while the hold lasted.
func (p *Party) LostBy(deadline time.Time, lost <-chan struct{}) {
	if deadline.IsZero() {
		p.Env.Doubtf("%s's hold had no Deadline: it was over before it should have been", p.Who)
	}
	select {
	case <-lost:
		if late := time.Since(deadline); late > Pause {
			p.Env.Doubtf("%s's Lost fired %v after Deadline", p.Who, late)
		}
	case <-time.After(time.Until(deadline) + 2*p.TTL + Pause):
		p.Env.Doubtf("%s's Lost has not fired %v after Deadline", p.Who, time.Since(deadline))
	}
}

// Within ends the trial unless a's Deadline is at most one TTL away just after op, and at least
// half of one, because it is unknown how long before op's return the request was sent.
func (e *Env) Within(a *Party, op string) {
	now, deadline := time.Now(), a.Deadline()
	left := deadline.Sub(now)
	if left > a.TTL {
		e.Failf("after %s with a TTL of %v A's Deadline is %v away", op, a.TTL, left)
	}
	if left < a.TTL/2 {
		e.Doubtf("after %s with a TTL of %v A's Deadline is only %v away", op, a.TTL, left)
	}
}

// AfterOutage takes the lock after an outage, when its leftovers have expired. Clients may return
// errors until they notice that it is over.
func (p *Party) AfterOutage(what string) *Party {
	limit := p.Env.Long + p.Env.Patience + p.Env.Grace
	ctx, cancel := context.WithTimeout(p.Env.Context(), limit)
	defer cancel()
	if err := p.LockAtLast(ctx); err != nil {
		p.Env.Doubtf("%s, but for %v %s did not get the lock: %v", what, limit, p.Who, err)
	}
	return p
}

// LockAtLast retries Lock until it succeeds or ctx ends, and returns the last error.
func (p *Party) LockAtLast(ctx context.Context) error {
	for {
		err := p.Lock(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if errors.Is(err, locker.ErrLost) {
			_ = p.Unlock()
		}
		time.Sleep(Settle / 10)
	}
}

// Outlasts ends the trial if b gets the lock before ctx ends, while p believes that it holds it.
func (p *Party) Outlasts(ctx context.Context, b *Party) {
	numbered := p.Token() != 0
	if b.LockAtLast(ctx) != nil {
		return
	}
	why := p.Believes()
	if why == "" && !numbered {
		why = p.trusts()
	}
	if why != "" { // else p noticed the loss first
		p.Env.Failf("%s has the lock, with the token %d, while %s still holds it, by %s%s", b.Who, b.Token(), p.Who, why, p.Env.bothWrite(p, b))
	}
}

// trusts is Believes for a Locker without tokens: the evidence is a Deadline in the future.
func (p *Party) trusts() string {
	select {
	case <-p.Lost():
		return ""
	default:
	}
	if left := time.Until(p.Deadline()); left > 0 {
		return fmt.Sprintf("its Deadline in %v", left.Round(time.Millisecond))
	}
	return ""
}

// TakesAbove takes the lock, and ends the trial unless its token is above last, that of an earlier
// holder.
func (p *Party) TakesAbove(last uint64, what string) {
	p.AfterOutage(what)
	if token := p.Token(); token <= last {
		p.Prolong() // is it lost?
		p.Env.Failf("another held with the token %d, and then %s with %d", last, p.Who, token)
	}
	_ = p.Unlock()
}

// told reports whether the Locker knows, without a request, that the hold with that token is lost.
// Without tokens (all are 0) it may not know.
func (p *Party) told(token uint64) bool {
	select {
	case <-p.Lost():
		return true
	default:
		return p.Token() != token
	}
}

// Until returns until when the hold is assured unless somebody ends it, as of its grant or last
// Extend, or its Deadline if that is later, as after a renewal.
func (p *Party) Until() time.Time {
	until := p.Deadline()
	if lasts := p.lasts.Load(); lasts != nil && lasts.After(until) {
		until = *lasts
	}
	return until
}

// Excludes ends the trial if b, trying for d, gets the lock that p holds.
func (p *Party) Excludes(b *Party, d time.Duration) {
	if err := b.LockWithin(d); err != nil {
		return
	}
	p.Overlap(b)
}

// Overlap ends the trial: b got the lock while p held it. The breach is certain before Until, or if
// p can still extend its hold. That p was notified of a loss is an excuse only if there are faults:
// without faults nobody has ended its hold.
func (p *Party) Overlap(b *Party) { p.OverlapOf("Lock", b) }

// OverlapOf is Overlap for another call of b than Lock.
func (p *Party) OverlapOf(op string, b *Party) {
	token := p.Token()
	if left := time.Until(p.Until()); left > 0 && (p.Env.Calm || token != 0 && !p.told(token)) {
		p.Env.Failf("%s's %s succeeded while %s held the lock, which nobody had ended, for %v more: its token is %d, and its Extend then says %s",
			b.Who, op, p.Who, left.Round(time.Millisecond), token, Says(p.Extend()))
	}
	err := p.Extend()
	if err == nil {
		p.Env.Failf("%s's %s succeeded while %s held the lock: %s's Extend still succeeds", b.Who, op, p.Who, p.Who)
	}
	p.Env.Doubtf("%s's %s succeeded while %s held the lock, whose Extend then says %v", b.Who, op, p.Who, Says(err))
}
