package redisscript

import (
	"context"
	"slices"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// mostExtensions is how many requests a pipeline of them has. It is written before the first reply is read: what is on its way
// has to fit into the buffers of a proxy that reads nothing while nobody reads its replies.
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
	calls, replies, args := make([]Call, len(leases)), make([]Reply, len(leases)), make([][2]any, len(leases))
	r := d.sender.requestOf(calls, replies)
	for i := range leases {
		l := leases[i].(*lease)
		args[i] = [2]any{l.argOwner, d.expiryArg(ttl)}
		calls[i].Script, calls[i].Keys = l.extension()
		calls[i].Args = args[i][:]
		r.direct = l.direct
	}
	sent := clock.Now()
	failed, answered := d.sender.send(ctx, ttl, r)
	for i := range leases {
		reply := failed
		if answered {
			reply = replies[i]
		}
		errs = append(errs, leases[i].(*lease).extended(reply, sent, ttl))
	}
	return errs
}
