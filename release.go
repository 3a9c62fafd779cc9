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
		_ = c.release(c.open, lease, ttl, clock.Now().Add(ttl), nil)
	}
}

const (
	foregroundTries = 3                      // failed releases that an Unlock waits for
	lastTries       = 500 * time.Millisecond // how long release goes on after its context has ended
)

// release gives a lease back, and tries again until the backend has answered, or deadline has come and
// the lease is not known to go on. After the end of ctx it tries for a moment more, and never after
// Close. It returns the outcome of the last try, and sends it to told, if that is not nil, as soon as
// it is known or a few tries have failed.
func (c *Client) release(
	ctx context.Context, lease Lease, ttl time.Duration, deadline time.Time, told chan<- error,
) error {
	pause := min(max(ttl/100, time.Millisecond), 50*time.Millisecond)
	hurried := false
	for try := 1; ; try++ {
		if now := clock.Now(); ctx.Err() != nil && !hurried {
			hurried = true
			if last := now.Add(lastTries); last.Before(deadline) {
				deadline = last
			}
		}
		err := c.tryRelease(lease, ttl, deadline)
		answered := err == nil || errors.Is(err, ErrLost)
		wait := pause/2 + rand.N(pause)
		left := deadline.Sub(clock.Now())
		late := left <= wait && (hurried || lease.Validity() <= max(left, 0)+drift(ttl))
		over := answered || late || c.background.Err() != nil
		if told != nil && (over || try == foregroundTries) {
			told <- err
			told = nil
		}
		if over {
			return err
		}
		t := time.NewTimer(wait)
		if hurried {
			<-t.C
		} else {
			select {
			case <-t.C:
			case <-ctx.Done():
			}
		}
		pause = min(2*pause, time.Second)
	}
}

// tryRelease asks once, and not for so long that a lost reply would cost the other tries.
func (c *Client) tryRelease(lease Lease, ttl time.Duration, deadline time.Time) error {
	patience := ttl / 4
	if left := deadline.Sub(clock.Now()); left > 0 {
		patience = min(patience, left)
	}
	ctx, cancel := context.WithTimeout(c.background, patience)
	defer cancel()
	return ownError(ctx, lease.Release(ctx))
}
