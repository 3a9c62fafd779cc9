package harness

import (
	"context"

	"github.com/go-locker/locker/driver"
)

// Take asks d once for a lease.
func Take(ctx context.Context, d driver.Driver, req driver.Request) (driver.Lease, error) {
	claimer, ok := d.(driver.Claimer)
	if !ok {
		return d.(driver.Acquirer).Acquire(ctx, req)
	}
	claim := claimer.Claim(req)
	if _, err := claim.Ask(ctx); err != nil {
		return nil, err
	}
	return claim, nil
}
