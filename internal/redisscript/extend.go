package redisscript

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/redisscript/script"
)

// Extend implements driver.Claim.
func (c *claim) Extend(ctx context.Context, ttl time.Duration) error {
	sent := clock.Now()
	what, keys := c.extension()
	return c.onExtension(c.send(ctx, what, keys, c.argOwner, c.driver.expiryArg(ttl)), sent, ttl)
}

// extension returns the script that extends c, and its keys: of a hold the lock's alone.
func (c *claim) extension() (*script.Script, []any) {
	if c.hold.shared.Load() {
		return script.ExtendShared, c.Keys[:]
	}
	return script.Extend, c.Keys[:1]
}

// onExtension takes in the reply to an extension that was sent at sent.
func (c *claim) onExtension(r script.Reply, sent time.Time, ttl time.Duration) error {
	err := r.LostUnlessOne()
	if err == nil {
		c.hold.until.Extend(sent.Add(ttl))
	}
	return err
}

// Downgrade implements driver.Downgrader. From now on c may be a share, whatever becomes of the
// request.
func (c *claim) Downgrade(ctx context.Context) error {
	c.hold.shared.Store(true)
	return c.send(ctx, script.Downgrade, c.Keys[:], c.argOwner).LostUnlessOne()
}

// mostExtensions is how many requests a pipeline of them has. It is written before the first reply
// is read: what is on its way has to fit into the buffers of a proxy that reads nothing while
// nobody reads its replies.
const mostExtensions = 1024

// ExtendAll implements driver.BatchExtender, in one round trip for each mostExtensions leases.
func (d *Driver) ExtendAll(ctx context.Context, leases []driver.Claim, ttl time.Duration) []error {
	errs := make([]error, 0, len(leases))
	for some := range slices.Chunk(leases, mostExtensions) {
		calls, replies, args := make([]script.Call, len(some)), make([]script.Reply, len(some)), make([][2]any, len(some))
		r := d.sender.RequestOf(calls, replies)
		for i := range some {
			c := some[i].(*claim)
			args[i] = [2]any{c.argOwner, d.expiryArg(ttl)}
			calls[i].Script, calls[i].Keys = c.extension()
			calls[i].Args = args[i][:]
			r.Counted = c.redlock
		}
		sent := clock.Now()
		failed, answered := d.sender.Send(ctx, ttl, r)
		for i := range some {
			reply := failed
			if answered {
				reply = replies[i]
			}
			errs = append(errs, some[i].(*claim).onExtension(reply, sent, ttl))
		}
	}
	return errs
}

// NotifyWait implements driver.WaitNotifier. It has the server note that this process wants to hear
// of waiters: the request that enqueues the next one publishes that, on the channel of the
// process's own waiters.
func (c *claim) NotifyWait(ctx context.Context, wake func()) (waits bool, next time.Duration, err error) {
	hub := c.driver.hub
	subscribed := hub.Watch(ctx, c.Keys, wake) // before it is noted, so that no message is missed
	process := hub.Prefix()
	if process[0] == script.Polls {
		process = ""
	}
	reply := c.send(ctx, script.Notify, c.Keys[:], c.argOwner, process)
	if reply.Err != nil {
		return false, 0, reply.Err
	}
	n, ok := reply.Value.(int64)
	if !ok {
		return false, 0, fmt.Errorf("unexpected reply to the notify script: %v", reply.Value)
	}
	if subscribed {
		next = c.TTL
	}
	return n == 1, next, nil
}
