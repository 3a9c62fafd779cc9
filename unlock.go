package locker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// Unlock ends this hold and no other, and returns by the hold's deadline whatever ctx allows. It returns ErrLost if the hold
// had ended before. A second call returns ErrNotHeld. See [Locker].
//
// If ctx has ended, or ends meanwhile, Unlock still ends the hold. It returns within milliseconds, with an error that matches ctx.Err() if the release
// was not answered by then, and goes on with the release in the background: others get the lock soon, but the caller does not learn
// whether the hold had lasted. To learn that, pass [context.WithoutCancel] of ctx.
func (h *Hold) Unlock(ctx context.Context) error {
	return h.client.observed(ctx, opUnlock, h.name, func(ctx context.Context) Result {
		return Result{Token: h.token, Err: h.unlock(ctx)}
	})
}

func (h *Hold) unlock(ctx context.Context) error {
	defer h.tellEndings(ErrNotHeld)
	c := h.client
	deadline, err := h.conclude()
	if err != nil {
		return err
	}
	defer c.calls.Done()
	if !h.carriedBy(ctx) { // else in the end: ctx would end with them
		h.tellEndings(ErrNotHeld)
	}
	if ended := c.config.observer.Ended; ended != nil {
		defer ended(ctx, h.id(), h.howEnded(CauseUnlocked, deadline)) // how it is now; told when the release has been made
	}
	r := returning{h, deadline, ctx}
	var tried error
	if ctx.Err() == nil { // else the Driver may not even ask
		if tried = r.try(); tried == nil || errors.Is(tried, ErrLost) {
			return tried
		}
	}
	r.ctx = context.WithoutCancel(ctx)
	told := make(chan error, 1)
	c.spawn(func() {
		if err := r.untilAnswered(c.background, tried, told); err != nil && !errors.Is(err, ErrLost) {
			h.releaseAfter(deadline) // its session may go on
		}
	})
	expired := time.NewTimer(deadline.Sub(clock.Now()))
	defer expired.Stop()
	select {
	case err = <-told:
	case <-ctx.Done():
		return interrupted(ctx, nil)
	case <-expired.C:
		err = errors.New("the backend has not answered by then")
	}
	if err != nil && !errors.Is(err, ErrLost) && !clock.Now().Before(deadline) {
		err = fmt.Errorf("%w: not released by its deadline: %w", ErrLost, err)
	}
	return err
}

// Abandon ends this hold, and leaves the lock taken until it expires: nobody else gets it before Deadline, and at the backend it is free within one TTL,
// also after a crash of this process or a Close of the Client. It makes no request and does not wait. Use it to keep a lock for a minimum
// time, so that a job of a few milliseconds is not run again by a machine whose clock is late. For a whole TTL from now, call Extend first.
//
// It returns ErrLost if the hold had ended before, and ErrNotHeld after Unlock or another Abandon. Afterwards Unlock returns ErrNotHeld.
func (h *Hold) Abandon() error {
	return wrap("abandon", h.name, h.abandon())
}

func (h *Hold) abandon() error {
	deadline, err := h.conclude()
	if err != nil {
		return err
	}
	defer h.client.calls.Done()
	h.leave()
	h.tellEndings(ErrNotHeld)
	h.observeEnded(h.howEnded(CauseAbandoned, deadline))
	h.releaseAfter(deadline)
	return nil
}

// leave keeps the end of the Driver from ending the lease.
func (h *Hold) leave() {
	if l, ok := h.lease.(driver.Leaver); ok {
		l.Leave()
	}
}

// conclude makes an Unlock or an Abandon the hold's end. It returns the deadline, or why there was nothing to end. Each success needs one
// c.calls.Done.
func (h *Hold) conclude() (time.Time, error) {
	c := h.client
	if c.begin() != nil {
		h.lose(CauseClosed)
		return h.markUnlocked()
	}
	deadline, err := h.markUnlocked()
	if err != nil {
		if errors.Is(err, ErrLost) {
			// It may last at the backend, if only the reply to a renewal was lost.
			c.spawn(h.giveBack)
		}
		c.calls.Done()
	}
	return deadline, err
}

// markUnlocked makes an Unlock the hold's end, and returns the deadline to meet, or why there was nothing to unlock.
func (h *Hold) markUnlocked() (time.Time, error) {
	_ = h.expireIfDue()
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.state
	h.state = unlocked
	switch was {
	case unlocked:
		return time.Time{}, ErrNotHeld
	case lost:
		return time.Time{}, ErrLost
	default:
		h.client.unschedule(h)
		return h.deadline, nil
	}
}

// returning is the lease of a hold on its way back to the backend.
type returning struct {
	hold     *Hold
	deadline time.Time       // by which the lease expires, unless it is of a session that goes on
	ctx      context.Context // whose values its requests have, and with which they end
}

// giveBack releases, once, a lease that may go on at the backend: that of a hold that was lost, or of one that has never begun
// because its attempt failed. It goes on until the backend has answered or the lease must have expired. Once the Client is closing it hurries.
func (h *Hold) giveBack() {
	if !h.givenBack.Swap(true) {
		_ = returning{h, clock.Now().Add(h.ttl), context.Background()}.untilAnswered(h.client.open, nil, nil)
	}
}

const (
	foregroundTries = 3                      // failed releases that an Unlock waits for
	lastTries       = 500 * time.Millisecond // how long release goes on after its context has ended
)

// untilAnswered gives the lease back, and tries again until the backend has answered, or the deadline has come and
// the lease is not known to go on. After the end of ctx it tries for a moment more, and never after
// Close. It returns the outcome of the last try, and sends it to told, if that is not nil, as soon as
// it is known or a few tries have failed. tried is the error of a try that has been made already, or nil.
func (r returning) untilAnswered(ctx context.Context, tried error, told chan<- error) error {
	began := clock.Now()
	lease, ttl := r.hold.lease, r.hold.ttl
	pause := min(max(ttl/100, time.Millisecond), 50*time.Millisecond)
	var hurry time.Time // the end of the tries after that of ctx
	again := func(wait time.Duration) bool {
		now := clock.Now()
		left := r.deadline.Sub(now)
		if ctx.Err() == nil {
			return left > wait || lease.Validity() > max(left, 0)+drift(ttl)
		}
		if hurry.IsZero() {
			hurry = now.Add(lastTries)
		}
		return min(left, hurry.Sub(now)) > wait && r.ctx.Err() == nil && r.hold.client.background.Err() == nil
	}
	for try := 1; ; try++ {
		err := tried
		if err == nil {
			err = r.try()
		}
		tried = nil
		wait := pause/2 + rand.N(pause)
		over := err == nil || errors.Is(err, ErrLost) || !again(wait)
		if told != nil && (over || try == foregroundTries) {
			told <- err
			told = nil
		}
		if over {
			r.logOutcome(err, try, began)
			return err
		}
		doze(ctx, wait)
		pause = min(2*pause, time.Second)
	}
}

// doze waits for d, or until ctx ends if it has not yet.
func doze(ctx context.Context, d time.Duration) {
	ended := ctx.Done()
	if ctx.Err() != nil {
		ended = nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ended:
	}
}

// try asks once, and not for so long that a lost reply would cost the other tries.
func (r returning) try() error {
	patience := r.hold.ttl / 4
	if left := r.deadline.Sub(clock.Now()); left > 0 {
		patience = min(patience, left)
	}
	own, cancel := bound(r.ctx, r.hold.client.background, patience)
	defer cancel()
	return ownError(own, r.hold.lease.Release(own))
}
