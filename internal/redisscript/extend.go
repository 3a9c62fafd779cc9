package redisscript

import (
	"context"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/clock"
)

// mostExtensions is how many requests a pipeline of them has. It is written before the first reply is read: what is on its way
// has to fit into the buffers of a proxy that reads nothing while nobody reads its replies.
const mostExtensions = 1024

// ExtendAll implements locker.BatchExtender, in one round trip for each mostExtensions leases.
func (d *Driver) ExtendAll(ctx context.Context, leases []locker.Lease, ttl time.Duration) []error {
	errs := make([]error, len(leases))
	calls := make([]Call, min(len(leases), mostExtensions))
	args := make([][2]any, len(calls))
	replies := make([]Reply, len(calls))
	for from := 0; from < len(leases); from += mostExtensions {
		some := leases[from:min(from+mostExtensions, len(leases))]
		for i := range some {
			l := some[i].(*lease)
			calls[i] = Call{extend, l.keys[:1], values(args[i][:0], extendArgs{l.argOwner, d.expiryArg(ttl)}.list())}
		}
		clear(replies)
		sent := clock.Now()
		d.runner.Run(ctx, calls[:len(some)], replies[:len(some)])
		for i := range some {
			errs[from+i] = some[i].(*lease).extended(replies[i], sent, ttl)
		}
	}
	return errs
}

// extended takes in the reply to an extension that was sent at sent.
func (l *lease) extended(r Reply, sent time.Time, ttl time.Duration) error {
	err := lostUnlessOne(r)
	if err == nil {
		l.lasts(sent, ttl)
	}
	return err
}
