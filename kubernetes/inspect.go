package kubernetes

import (
	"context"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/go-locker/locker/driver"
)

// Inspect makes the Driver a driver.Inspector.
func (d *Driver) Inspect(ctx context.Context, name string) (driver.State, error) {
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

// List makes the Driver a driver.Lister.
func (d *Driver) List(prefix string) driver.Pager {
	from := ""
	return func(ctx context.Context) (page driver.Page, err error) {
		leases, date, err := d.api.list(ctx, from)
		if err != nil {
			return page, err
		}
		for i := range leases.Items {
			o, err := parse(&leases.Items[i])
			if err != nil {
				return page, err
			}
			name, named := o.lease.Annotations[nameKey]
			switch r := (reply{o, date}); {
			case o.owner == "" || r.age() >= o.ttl:
			case !named:
				page.Unnamed++
			case strings.HasPrefix(name, prefix):
				page.Names = append(page.Names, name)
			}
		}
		from = leases.Continue
		page.Last = from == ""
		return page, nil
	}
}

// ForceRelease makes the Driver a driver.ForceReleaser.
func (d *Driver) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	for {
		s, err := d.read(ctx, name)
		switch {
		case apierrors.IsNotFound(err), err == nil && s.expired(time.Now()):
			return driver.ErrNotHeld
		case err != nil:
			return err
		case shown.Token != 0 && shown.Token != s.token, shown.Holder.ID != "" && shown.Holder.ID != s.owner:
			return &driver.HeldError{Holder: s.holder()}
		}
		if _, err = d.write(ctx, name, s.freed("")); !changed(err) {
			return err
		}
	}
}
