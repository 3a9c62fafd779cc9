package s3

import (
	"context"
	"time"

	"github.com/go-locker/locker/driver"
)

// Inspect implements driver.Inspector, with one read.
func (d *Driver) Inspect(ctx context.Context, name string) (state driver.State, err error) {
	o, err := d.get(ctx, d.key(name))
	if err != nil {
		return state, err
	}
	state.Token = o.Token
	if left := o.left(); left > 0 {
		state.Held, state.Holder = true, o.holder()
		state.Left = min(left, time.Duration(o.TTL)*time.Second) // the store's second belongs to nobody
	}
	return state, nil
}

// ForceRelease implements driver.ForceReleaser. The object has no owner then: what the former
// holder sends is refused.
func (d *Driver) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	key := d.key(name)
	o, err := d.get(ctx, key)
	for try := 1; ; try++ {
		switch {
		case err != nil:
		case o.left() <= 0:
			return driver.ErrNotHeld
		case shown.Token != 0 && shown.Token != o.Token, shown.Holder.ID != "" && shown.Holder.ID != o.Owner:
			return heldBy(o)
		default:
			o, err = d.put(ctx, key, o.etag, record{Name: name, Token: o.Token, Released: true})
		}
		if err == nil || !again(ctx, err, try) {
			return err
		}
		o, err = d.look(ctx, key, o, err)
	}
}
