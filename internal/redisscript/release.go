package redisscript

import (
	"context"
	"errors"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/redisscript/send"
)

// How a claim is given back.
//
//  1. The hub hears of it first: from then on a claim of the lock for the owner is declined.
//  2. A claim of which the server cannot know anything sends nothing.
//  3. A take that was given up may still arrive, and is waited for. If it has not ended after 20 ms,
//     what it has done by then is undone beforehand: it holds others up.
//  4. release.lua, one atomic step, compares the owner:
//
//	held by it, or claimed for it   hand over to the first waiter, or free   → 1
//	in the queue, no token known    leave the queue                          → 1
//	anything else, or expired       nothing                                  → 0, ErrLost
//
// Lost reply: the hold may be gone because this release ended it, or because it expired. So each
// sending says how often the request was sent before, also by the client library (sendings). If the
// hold is gone, only a request that was sent before is answered with 1, and only if the server
// still knows its token as granted, and not as ended in another way. In doubt it is ErrLost, and
// stays that: asked again, the server would take it for a lost reply.

// Release implements driver.Claim.
func (c *claim) Release(ctx context.Context) error {
	c.driver.hub.Leave(&c.Waiter)
	if !c.there {
		return nil
	}
	undone := false
	if r := c.givenUp; r != nil {
		var err error
		if undone, err = c.awaitTake(ctx); err != nil {
			return err
		}
		if reply := r.Reply(); reply.Err != nil && !reply.MayHaveRun && !c.known {
			return nil
		}
	}
	if c.hold.lost.Load() {
		return driver.ErrLost
	}
	err := c.release(ctx, c.hold.token.Load(), &c.hold.releases)
	if errors.Is(err, driver.ErrLost) {
		c.hold.lost.Store(true)
		if undone {
			return nil
		}
	}
	return err
}

// awaitTake waits until the take of c that was given up has ended. If that takes long, what it has
// done by then is undone beforehand.
func (c *claim) awaitTake(ctx context.Context) (undone bool, err error) {
	soon, cancel := context.WithTimeout(ctx, send.Overdue)
	defer cancel()
	if c.givenUp.Await(soon) == nil {
		return false, nil
	}
	undone = ctx.Err() == nil && c.release(ctx, 0, new(sendings)) == nil
	if c.givenUp.Await(ctx) != nil {
		return false, send.ErrNoAnswer
	}
	return undone, nil
}

func (c *claim) release(ctx context.Context, token uint64, sent *sendings) error {
	return c.send(ctx, script.Release, c.Keys[:], c.argOwner, int64(token), sent).LostUnlessOne()
}
