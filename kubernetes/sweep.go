package kubernetes

import (
	"context"
	"math/rand/v2"
	"time"
)

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
// was over. A Lease with a token above its version, as in a copy from another cluster, is in use: the
// tokens of a new Lease would begin below.
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
