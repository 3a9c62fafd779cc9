package conformance

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

// early is for a Lock that returned err, though a holds the lock and ctx has not ended.
func (e *env) early(a, b *party, err error) {
	if err == nil {
		a.overlap(b)
	}
	e.doubtf("B's Lock, before its ctx ended: %v; want it to wait", err)
}

// gone waits until a Lock that was cancelled has returned.
func (e *env) gone(p *party, done <-chan error) {
	select {
	case err := <-done:
		if err == nil {
			e.doubtf("%s's Lock succeeded while another held the lock", p.who)
		}
	case <-time.After(e.patience):
		e.doubtf("%s's Lock had not returned %v after its ctx ended", p.who, e.patience)
	}
}

// still ends the trial unless p holds yet.
func (p *party) still(after string) {
	switch err := p.extend(); {
	case errors.Is(err, locker.ErrNotHeld):
		p.env.failf("%s, and %s's Extend says %v", after, p.who, err)
	case err != nil && !errors.Is(err, remote.ErrMissing): // for want of time, or of a connection
		p.env.doubtf("%s, and %s's Extend says %v", after, p.who, err)
	}
}

// harmless ends the trial if what a former holder does harms the one who has taken over.
func (e *env) harmless(op string, do func(*party) error, watch time.Duration) {
	a, b := e.rivals(e.ttl, e.long)
	a.takeOver(b)
	e.steady(a, b, op, do, watch)
}

// steady has a, who was overtaken by b, do something, and ends the trial unless b's hold lasts. A
// third one tries to get the lock for as long as watch.
func (e *env) steady(a, b *party, op string, do func(*party) error, watch time.Duration) {
	c := e.party("C", b.name, e.long)
	token := b.token()
	returned := do(a)
	if err := c.lockWithin(watch); err == nil {
		e.robbed(b, op, returned)
	}
	if now := b.token(); now != token && now != 0 {
		e.failf("B's token was %d, and after A's %s it is %d", token, op, now)
	}
	b.prolong()
	b.release()
}

// robbed ends the trial: b does not hold, or not alone, after what a former holder did. A Locker
// may notice the loss, and report it, or not.
func (e *env) robbed(b *party, op string, returned error) {
	if err := b.extend(); err != nil {
		e.doubtf("B held the lock; A, who had lost it, called %s (%s); then C's Lock succeeded, and B's Extend says %s",
			op, says(returned), says(err))
	}
	e.failf("B held the lock; A, who had lost it, called %s (%s); then C's Lock succeeded, while B's Extend still does", op, says(returned))
}

// tells skips the scenario unless the Locker has Lost, and Deadline.
func (p *party) tells() {
	if _, ok := can[power.Loser](p.l, stdio.CanLost); !ok {
		p.env.skip("the Locker has no Lost")
	}
	p.tellsDeadline()
}

func (p *party) tellsDeadline() {
	if _, ok := can[power.Deadliner](p.l, stdio.CanDeadline); !ok {
		p.env.skip("the Locker has no Deadline")
	}
}

// lostBy ends the trial unless Lost fires by the deadline, give or take a pause of this machine.
// The deadline was asked for while the hold lasted.
func (p *party) lostBy(deadline time.Time, lost <-chan struct{}) {
	if deadline.IsZero() {
		p.env.doubtf("%s's hold had no Deadline: it was over before it should have been", p.who)
	}
	select {
	case <-lost:
		if late := time.Since(deadline); late > pause {
			p.env.doubtf("%s's Lost fired %v after Deadline", p.who, late)
		}
	case <-time.After(time.Until(deadline) + 2*p.ttl + pause):
		p.env.doubtf("%s's Lost has not fired %v after Deadline", p.who, time.Since(deadline))
	}
}

// within ends the trial if the deadline is not what op may have made it just now. The request was
// sent before op returned; how long before cannot be known.
func (e *env) within(a *party, op string) {
	now, deadline := time.Now(), a.deadline()
	left := deadline.Sub(now)
	if left > a.ttl {
		e.failf("after %s with a TTL of %v A's Deadline is %v away", op, a.ttl, left)
	}
	if left < a.ttl/2 {
		e.doubtf("after %s with a TTL of %v A's Deadline is only %v away", op, a.ttl, left)
	}
}

// afterOutage takes the lock, whatever the outage has left behind. Clients may need a while, and
// errors, to see that it is over.
func (p *party) afterOutage(what string) {
	limit := p.env.long + p.env.patience + p.env.grace
	ctx, cancel := context.WithTimeout(p.env.Context(), limit)
	defer cancel()
	if err := p.lockAtLast(ctx); err != nil {
		p.env.doubtf("%s, but for %v %s did not get the lock: %v", what, limit, p.who, err)
	}
}

// lockAtLast locks whatever errors there are before ctx ends. It returns the last.
func (p *party) lockAtLast(ctx context.Context) error {
	for {
		err := p.lock(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if errors.Is(err, locker.ErrLost) {
			_ = p.unlock()
		}
		time.Sleep(settle / 10)
	}
}

// outlasts ends the trial if b gets the lock before ctx ends while p believes that it holds.
func (p *party) outlasts(ctx context.Context, b *party) {
	numbered := p.token() != 0
	if b.lockAtLast(ctx) != nil {
		return
	}
	why := p.believes()
	if why == "" && !numbered {
		why = p.trusts()
	}
	if why != "" { // else it has heard of it first
		p.env.failf("%s has the lock, with the token %d, while %s still holds it, by %s%s", b.who, b.token(), p.who, why, p.env.bothWrite(p, b))
	}
}

// trusts returns by what p holds, as far as it knows, or "", if p has no tokens.
func (p *party) trusts() string {
	select {
	case <-p.lost():
		return ""
	default:
	}
	if left := time.Until(p.deadline()); left > 0 {
		return fmt.Sprintf("its Deadline in %v", left.Round(time.Millisecond))
	}
	return ""
}

// takesAbove takes the lock when another, who held with the token last, has unlocked.
func (p *party) takesAbove(last uint64, what string) {
	p.afterOutage(what)
	if token := p.token(); token <= last {
		p.prolong() // is it lost?
		p.env.failf("another held with the token %d, and then %s with %d", last, p.who, token)
	}
	_ = p.unlock()
}
