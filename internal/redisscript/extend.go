package redisscript

import (
	"context"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// mostExtensions is how many requests a pipeline of them has. It is written before the first reply is read: what is on its way
// has to fit into the buffers of a proxy that reads nothing while nobody reads its replies.
const mostExtensions = 1024

// ExtendAll implements driver.BatchExtender, in one round trip for each mostExtensions leases.
func (d *Driver) ExtendAll(ctx context.Context, leases []driver.Lease, ttl time.Duration) []error {
	errs := make([]error, len(leases))
	for from := 0; from < len(leases); from += mostExtensions {
		to := min(from+mostExtensions, len(leases))
		d.extendSome(ctx, leases[from:to], errs[from:to], ttl)
	}
	return errs
}

// extendSome extends leases in one request.
func (d *Driver) extendSome(ctx context.Context, leases []driver.Lease, errs []error, ttl time.Duration) {
	replies := make([]Reply, len(leases))
	r := d.sender.requestOf(make([]Call, len(leases)), replies)
	args := make([][2]any, len(leases))
	for i := range leases {
		l := leases[i].(*lease)
		r.calls[i] = Call{extend, l.keys[:1], values(args[i][:0], extendArgs{l.argOwner, d.expiryArg(ttl)}.list())}
		r.direct = l.direct
	}
	sent := clock.Now()
	failed, answered := d.sender.send(ctx, ttl, r)
	for i := range leases {
		reply := failed
		if answered {
			reply = replies[i]
		}
		errs[i] = leases[i].(*lease).extended(reply, sent, ttl)
	}
}
