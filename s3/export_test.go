package s3

import "context"

// Sweep has the Driver sweep now.
func (d *Driver) Sweep(ctx context.Context) error { return d.sweep(ctx) }

// Forget has each store tried anew: one may have an address that another had.
func Forget() { stores.Clear() }
