package redisscript

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-locker/locker/driver"
)

// ForceRelease implements driver.ForceReleaser, in one round trip.
func (d *Driver) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	keys, owners := keysOf(name), shown.Holder.ID
	if owners == "" {
		var all []string
		for _, share := range shown.Shares {
			all = append(all, share.ID)
		}
		owners = strings.Join(all, "\n")
	}
	reply, err := d.sender.call(ctx, force, keys[:], owners, shown.Token)
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
