package redisscript

import (
	"context"
	"fmt"
	"strings"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript/script"
)

// everybody is how far into the queue to look: to its end.
const everybody = -1

// Inspect implements driver.Operator, in one round trip. Who waits to hold the lock alone has no
// metadata here, and who was handed the lock and has yet to take it is the first of the waiters
// still.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.State, error) {
	keys := script.KeysOf(name)
	reply, err := d.sender.Call(ctx, script.Inspect, keys[:], everybody)
	if err != nil {
		return driver.State{}, err
	}
	state, ok := script.ParseState(reply)
	if !ok {
		return driver.State{}, fmt.Errorf("unexpected reply to the inspect script: %v", reply)
	}
	return state, nil
}

// ForceRelease implements driver.Operator, in one round trip.
func (d *Driver) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	keys, owners := script.KeysOf(name), shown.Holder.ID
	if owners == "" {
		var all []string
		for _, share := range shown.Shares {
			all = append(all, share.ID)
		}
		owners = strings.Join(all, "\n")
	}
	reply, err := d.sender.Call(ctx, script.Force, keys[:], owners, shown.Token)
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
