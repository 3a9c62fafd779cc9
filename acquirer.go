package locker

import (
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// How an Acquirer is asked that is no Claimer.

// poll attempts again and again, with a pause that grows, and differs from waiter to waiter. A TryLock attempts once.
func (c *contender) poll() (*Hold, error) {
	var (
		set      = c.mutex.settings
		answered time.Time // when the backend last said that the lock is another's
		pause    = set.backoffMin
	)
	for {
		h, err := c.attempt(clock.Now())
		if err == nil {
			return h, nil
		}
		if over := c.over(); over != nil {
			return nil, over
		}
		switch {
		case !c.waits():
			return nil, err
		case errors.Is(err, ErrHeld), errors.Is(err, errLate):
			answered = clock.Now()
		case clock.Since(answered) > set.ttl/2:
			return nil, err // a waiter rides out a short outage, and no other
		}
		if !c.wait(pause/2 + rand.N(pause/2+1)) {
			return nil, c.over()
		}
		pause = min(2*pause, set.backoffMax)
	}
}

// attempt tries once. It takes half a TTL at most.
func (c *contender) attempt(sent time.Time) (*Hold, error) {
	ctx, cancel := bound(c.ctx, c.mutex.client.open, c.mutex.settings.ttl/2)
	defer cancel()
	acquire := c.mutex.client.driver.(driver.Acquirer).Acquire
	if c.shares() {
		acquire = c.mutex.client.driver.(driver.Sharer).AcquireShared
	}
	lease, err := acquire(ctx, c.mutex.request)
	h, err := c.admit(lease, sent, ownError(ctx, err))
	if err != nil && (c.over() == nil || !errors.Is(err, errNoAnswer)) {
		c.answered(err)
	}
	return h, err
}

// queue waits in the backend's own queue.
func (c *contender) queue(d driver.Queuer) (*Hold, error) {
	h, err := c.askQueued(d)
	for errors.Is(err, errLate) && c.wait(c.mutex.settings.backoffMin) {
		c.answered(err)
		h, err = c.askQueued(d)
	}
	if err == nil {
		return h, nil
	}
	if c.latest == nil && !errors.Is(err, errNoAnswer) {
		c.answered(err)
	}
	if over := c.over(); over != nil {
		return nil, over
	}
	return nil, err
}

func (c *contender) askQueued(d driver.Queuer) (*Hold, error) {
	ctx, cancel := bound(c.ctx, c.mutex.client.open, time.Duration(math.MaxInt64))
	defer cancel()
	acquire := d.AcquireQueued
	if c.shares() {
		acquire = d.(driver.Sharer).AcquireSharedQueued
	}
	var mu sync.Mutex // a Driver that has given up may go on telling
	over := false
	lease, err := acquire(ctx, c.mutex.request, func(err error) {
		mu.Lock()
		defer mu.Unlock()
		if !over {
			c.answered(err)
		}
	})
	mu.Lock()
	over = true
	mu.Unlock()
	return c.admit(lease, time.Time{}, ownError(ctx, err)) // the request that was granted was sent at some time of the wait
}

// admit makes a hold of a lease that was asked for at sent (zero: the lease alone knows). If the request failed, or less than half a TTL is
// left, it gives back what may have been taken.
func (c *contender) admit(lease driver.Lease, sent time.Time, err error) (*Hold, error) {
	if lease == nil && err == nil {
		err = errors.New("the Driver returned neither a Lease nor an error")
	}
	if lease == nil {
		return nil, err
	}
	h := c.newHold(lease)
	if err == nil {
		err = h.begin(sent)
	}
	if err != nil {
		return nil, c.abandon(h, err)
	}
	return h, nil
}
