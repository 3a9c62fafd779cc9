package kubernetes

import (
	"context"
	"math/rand/v2"
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

// A Driver that has made a Lease sweeps now and then: one in sweepOdds times, so that what is left
// is bounded also if each program takes one lock and ends, and at most once in sweepEvery.
const (
	sweepEvery = 10 * time.Minute
	sweepOdds  = 64
	sweepLimit = time.Minute
)

// What nobody has used for so long is deleted. A holder that has died is given much longer, because
// of that only the clocks of API servers tell.
const (
	idleFree = 10 * time.Minute
	idleHeld = 24 * time.Hour
)

// sweepIfDue sweeps in a goroutine of its own.
func (d *backend) sweepIfDue() {
	d.sweeping.Lock()
	defer d.sweeping.Unlock()
	if rand.N(sweepOdds) > 0 || time.Since(d.swept) < sweepEvery {
		return
	}
	d.swept = time.Now()
	d.running.Go(func() {
		ctx, cancel := context.WithTimeout(d.ctx, sweepLimit)
		defer cancel()
		_ = d.sweep(ctx) // the next one tries again
	})
}

// sweep deletes Leases that are what they were when it has read them.
func (d *backend) sweep(ctx context.Context) error {
	for from := ""; ; {
		some, next, err := d.api.list(ctx, from)
		if err != nil {
			return err
		}
		for _, o := range some {
			if !o.unused() {
				continue
			}
			if err := d.api.remove(ctx, o.lease); err != nil && !changed(err) {
				return err
			}
		}
		if from = next; from == "" {
			return nil
		}
	}
}

// unused reports whether the Lease is a lock, and nobody has written it for a while, after its hold
// was over. A Lease with a token above its version, as in a copy from another cluster, is in use:
// the tokens of a new Lease would begin below.
func (o object) unused() bool {
	idle := idleFree
	if o.owner != "" {
		idle = o.ttl + idleHeld
	}
	at := o.written()
	if o.lease.Spec.RenewTime == nil { // it was never held
		at = o.lease.CreationTimestamp.Time
	}
	return o.lease.Name == objectName(o.lease.Annotations[nameKey]) && o.token <= o.version &&
		!at.IsZero() && o.date.Sub(at) > idle
}
