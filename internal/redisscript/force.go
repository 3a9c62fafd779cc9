package redisscript

import (
	"context"
	"fmt"

	"github.com/go-locker/locker/driver"
)

// ForceRelease implements driver.ForceReleaser, in one round trip.
func (d *Driver) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	keys := keysOf(name)
	reply, err := d.sender.call(ctx, force, keys[:], shown.Holder.ID, shown.Token)
	if err != nil {
		return err
	}
	switch reply {
	case any(int64(1)):
		return nil
	case any(int64(0)):
		return driver.ErrNotHeld
	case any(int64(-1)):
		return driver.ErrHeld
	default:
		return fmt.Errorf("unexpected reply to the force script: %v", reply)
	}
}
