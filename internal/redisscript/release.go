package redisscript

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/driver"
)

// Release implements driver.Lease. A take that was given up may still be under way, and is waited
// for.
func (c *claim) Release(ctx context.Context) error {
	c.driver.hub.leave(c)
	if !c.there {
		return nil
	}
	undone := false
	if r := c.givenUp; r != nil {
		var err error
		if undone, err = c.awaitTake(ctx); err != nil {
			return err
		}
		if reply := r.reply[0]; reply.Err != nil && !reply.MayHaveRun && !c.answered {
			return nil
		}
	}
	if c.lost.Load() {
		return driver.ErrLost // asked again the server would take it for a reply that was lost
	}
	err := c.release(ctx, c.token.Load(), &c.releases)
	if errors.Is(err, driver.ErrLost) {
		c.lost.Store(true)
		if undone {
			return nil
		}
	}
	return err
}

func (c *claim) release(ctx context.Context, token uint64, sent *sendings) error {
	script := release
	if c.shared.Load() {
		script = releaseShared
	}
	return lostUnlessOne(c.send(ctx, script, c.keys[:], c.argOwner, int64(token), sent))
}

// decline hands over what is claimed for an owner that waits no more. If that fails the claim
// expires.
func (d *Driver) decline(ctx context.Context, keys []any, owner string) {
	script := release
	if strings.Contains(owner, shareMark) {
		script = releaseShared
	}
	_, _ = d.sender.call(ctx, script, keys, claimMark+owner, 1, 0)
}

// takeEnded reports whether no take of c is under way that nobody waits for.
func (c *claim) takeEnded() bool { return c.givenUp == nil || c.givenUp.ended.Load() }

// awaitFormer waits until no take of c is under way.
func (c *claim) awaitFormer(ctx context.Context) error {
	if c.takeEnded() {
		return nil
	}
	select {
	case <-c.givenUp.done:
		c.givenUp.done <- true // for others who wait
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitTake waits until the take of c that was given up has ended. If that takes long, what it has
// done by then is undone beforehand: it holds others up.
func (c *claim) awaitTake(ctx context.Context) (undone bool, err error) {
	soon := time.NewTimer(overdue)
	defer soon.Stop()
	for {
		select {
		case <-c.givenUp.done:
			c.givenUp.done <- true
			return undone, nil
		case <-ctx.Done():
			return false, errNoAnswer
		case <-soon.C:
			undone = c.release(ctx, 0, new(sendings)) == nil
		}
	}
}

// sendings is an argument of a request that says how often the request has been sent before, also
// by a client library that tries again by itself: it is asked anew for each.
type sendings struct{ n atomic.Int64 }

// MarshalBinary implements Counter.
func (s *sendings) MarshalBinary() ([]byte, error) {
	n := s.n.Add(1) - 1
	if n == 0 {
		return zero, nil
	}
	return strconv.AppendInt(nil, n, 10), nil
}

var zero = []byte("0")

// RedisArg implements Counter.
func (s *sendings) RedisArg() any { return s.n.Add(1) - 1 }

// NotRun implements Counter.
func (s *sendings) NotRun() { s.n.Add(-1) }
