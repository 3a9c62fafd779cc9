package kubernetes

import (
	"context"
	"net/http"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/go-locker/locker/driver"
)

// Inspect implements driver.Operator.
func (d *backend) Inspect(ctx context.Context, name string) (driver.State, error) {
	s, err := d.read(ctx, name)
	switch {
	case apierrors.IsNotFound(err):
		return driver.State{}, nil
	case err != nil:
		return driver.State{}, err
	}
	state := driver.State{Token: s.token}
	if now := time.Now(); !s.expired(now) {
		state.Held, state.Holder = true, s.holder()
		state.Left = s.since.Add(s.ttl).Sub(now)
	}
	return state, nil
}

// List implements driver.Operator.
func (d *backend) List(prefix string) driver.Pager {
	from := ""
	return func(ctx context.Context) (page driver.Page, err error) {
		some, next, err := d.api.list(ctx, from)
		if err != nil {
			return page, err
		}
		for _, o := range some {
			switch name, named := o.lease.Annotations[nameKey]; {
			case o.owner == "" || o.age() >= o.ttl:
			case !named:
				page.Unnamed++
			case strings.HasPrefix(name, prefix):
				page.Names = append(page.Names, name)
			}
		}
		from, page.Last = next, next == ""
		return page, nil
	}
}

// ForceRelease implements driver.Operator.
func (d *backend) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	var refusal error
	for at, try := uint64(0), 0; ; try++ {
		s, err := d.read(ctx, name)
		switch {
		case apierrors.IsNotFound(err), err == nil && s.expired(time.Now()):
			return driver.ErrNotHeld
		case err != nil:
			return err
		case shown.Token != 0 && shown.Token != s.token, shown.Holder.ID != "" && shown.Holder.ID != s.owner:
			return &driver.HeldError{Holder: s.holder()}
		case refusal != nil && s.version == at:
			return refusal // nobody has changed the Lease: a webhook, or a proxy, refuses
		}
		if _, refusal = d.request(ctx, http.MethodPut, name, s.freed("")); !changed(refusal) {
			return refusal
		}
		at = s.version
		pause(ctx, try)
	}
}
