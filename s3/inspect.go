package s3

import (
	"context"
	"fmt"
	"time"

	"github.com/go-locker/locker/driver"
)

// Inspect implements driver.Operator, with one read.
func (d *backend) Inspect(ctx context.Context, name string) (state driver.State, err error) {
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

// List implements driver.Operator.
func (d *backend) List(string) driver.Pager {
	return func(context.Context) (driver.Page, error) {
		return driver.Page{}, fmt.Errorf("%w: it does not list locks", driver.ErrUnsupported)
	}
}

// ForceRelease implements driver.Operator. The object has no owner then: what the former
// holder sends is refused.
func (d *backend) ForceRelease(ctx context.Context, name string, shown driver.State) error {
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
