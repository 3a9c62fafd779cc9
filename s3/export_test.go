package s3

import "context"

// Driver is what NewDriver returns.
type Driver = backend

// Sweep has the Driver sweep now.
func (d *backend) Sweep(ctx context.Context) error { return d.sweep(ctx) }

// Forget has each store tried anew: one may have an address that another had.
func Forget() { stores.Clear() }

// Age has the latest self-test of d's store be long ago.
func Age(d *backend) { d.store.tested.Store(0) }
