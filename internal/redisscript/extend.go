package redisscript

import (
	"context"
	"slices"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/redisscript/script"
)

// Extend implements driver.Lease.
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
func (d *Driver) ExtendAll(ctx context.Context, leases []driver.Lease, ttl time.Duration) []error {
	errs := make([]error, 0, len(leases))
	for some := range slices.Chunk(leases, mostExtensions) {
		errs = d.extendSome(ctx, some, errs, ttl)
	}
	return errs
}

// extendSome extends leases in one request, and appends an error, or nil, for each to errs.
func (d *Driver) extendSome(ctx context.Context, leases []driver.Lease, errs []error, ttl time.Duration) []error {
	calls, replies, args := make([]script.Call, len(leases)), make([]script.Reply, len(leases)), make([][2]any, len(leases))
	r := d.sender.RequestOf(calls, replies)
	for i := range leases {
		c := leases[i].(*claim)
		args[i] = [2]any{c.argOwner, d.expiryArg(ttl)}
		calls[i].Script, calls[i].Keys = c.extension()
		calls[i].Args = args[i][:]
		r.Counted = c.redlock
	}
	sent := clock.Now()
	failed, answered := d.sender.Send(ctx, ttl, r)
	for i := range leases {
		reply := failed
		if answered {
			reply = replies[i]
		}
		errs = append(errs, leases[i].(*claim).onExtension(reply, sent, ttl))
	}
	return errs
}
