package locker

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-locker/locker/internal/clock"
)

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
	own, cancel := r.hold.client.requestContext(r.ctx, patience)
	defer cancel()
	return ownError(own, r.hold.lease.Release(own))
}
