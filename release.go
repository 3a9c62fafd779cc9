package locker

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/go-locker/locker/internal/clock"
)

// cleanUp releases what an attempt may have taken, until the backend has answered or the lease
// must have lapsed. Once the Client is closing it hurries.
func (c *Client) cleanUp(lease Lease, ttl time.Duration) {
	if lease != nil {
		_ = c.release(c.open, lease, ttl, clock.Now().Add(ttl), nil, nil)
	}
}

const (
	foregroundTries = 3                      // failed releases that an Unlock waits for
	lastTries       = 500 * time.Millisecond // how long release goes on after its context has ended
)

// release gives a lease back, and tries again until the backend has answered, or deadline has come and
// the lease is not known to go on. After the end of ctx it tries for a moment more, and never after
// Close. It returns the outcome of the last try, and sends it to told, if that is not nil, as soon as
// it is known or a few tries have failed. tried is the error of a try that has been made already, or nil.
func (c *Client) release(
	ctx context.Context, lease Lease, ttl time.Duration, deadline time.Time, tried error, told chan<- error,
) error {
	pause := min(max(ttl/100, time.Millisecond), 50*time.Millisecond)
	var hurry time.Time // the end of the tries after that of ctx
	again := func(wait time.Duration) bool {
		now := clock.Now()
		left := deadline.Sub(now)
		if ctx.Err() == nil {
			return left > wait || lease.Validity() > max(left, 0)+drift(ttl)
		}
		if hurry.IsZero() {
			hurry = now.Add(lastTries)
		}
		return min(left, hurry.Sub(now)) > wait && c.background.Err() == nil
	}
	for try := 1; ; try++ {
		err := tried
		if err == nil {
			err = c.tryRelease(context.Background(), lease, ttl, deadline)
		}
		tried = nil
		wait := pause/2 + rand.N(pause)
		over := err == nil || errors.Is(err, ErrLost) || !again(wait)
		if told != nil && (over || try == foregroundTries) {
			told <- err
			told = nil
		}
		if over {
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

// tryRelease asks once, until ctx ends, and not for so long that a lost reply would cost the other tries.
func (c *Client) tryRelease(ctx context.Context, lease Lease, ttl time.Duration, deadline time.Time) error {
	patience := ttl / 4
	if left := deadline.Sub(clock.Now()); left > 0 {
		patience = min(patience, left)
	}
	own, cancel := context.WithTimeout(c.background, patience)
	defer cancel()
	if ctx.Done() != nil {
		forget := context.AfterFunc(ctx, cancel)
		defer forget()
	}
	return ownError(own, lease.Release(own))
}
