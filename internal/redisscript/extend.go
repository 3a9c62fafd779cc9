package redisscript

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/clock"
)

// together is how many locks one script extends, where it may: for three quarters of a
// millisecond, as was measured, the server does nothing else.
const together = 128

// ExtendAll implements locker.BatchExtender, in one round trip unless some of the locks have errors of their own.
func (d *Driver) ExtendAll(ctx context.Context, leases []locker.Lease, ttl time.Duration) []error {
	errs := make([]error, len(leases))
	all := make([]int, len(leases))
	for i := range all {
		all[i] = i
	}
	size := together
	if !d.runner.Together() || d.apart.Load() {
		size = 1
	}
	if alone := d.extend(ctx, leases, all, size, ttl, errs); len(alone) > 0 {
		d.extend(ctx, leases, alone, 1, ttl, errs)
	}
	return errs
}

// extend extends the leases at places, size of them with each script, and sets their errors. It returns the places of
// those that have to be extended alone.
func (d *Driver) extend(
	ctx context.Context, leases []locker.Lease, places []int, size int, ttl time.Duration, errs []error,
) (alone []int) {
	scripts := slices.Collect(slices.Chunk(places, size))
	calls := make([]Call, len(scripts))
	for i, some := range scripts {
		c := Call{Script: extend, Keys: make([]any, 0, len(some)), Args: make([]any, 1, 1+len(some))}
		c.Args[0] = expiry(ttl)
		for _, place := range some {
			l := leases[place].(*lease)
			c.Keys, c.Args = append(c.Keys, l.keys[0]), append(c.Args, l.argOwner)
		}
		calls[i] = c
	}
	sent := clock.Now()
	replies := make([]Reply, len(calls))
	d.runner.Run(ctx, calls, replies)
	for i, r := range replies {
		some := scripts[i]
		replies, err := extensions(r, len(some))
		if len(some) > 1 && err != nil && strings.HasPrefix(err.Error(), "CROSSSLOT") {
			// A Redis Cluster after all, by its node or behind a proxy.
			d.apart.Store(true)
			alone = append(alone, some...)
			continue
		}
		for j, place := range some {
			switch {
			case err != nil:
				errs[place] = err
			case replies[j] == any(int64(-1)):
				alone = append(alone, place)
			default:
				if errs[place] = lostUnlessOne(Reply{Value: replies[j]}); errs[place] == nil {
					leases[place].(*lease).lasts(sent, ttl)
				}
			}
		}
	}
	return alone
}

// extensions are the replies for each of n locks.
func extensions(r Reply, n int) ([]any, error) {
	if r.Err != nil || n == 1 {
		return []any{r.Value}, r.Err
	}
	all, ok := r.Value.([]any)
	if !ok || len(all) != 1+n {
		return nil, fmt.Errorf("unexpected reply to the extend script, of %d locks: %v", n, r.Value)
	}
	return all[1:], nil
}
