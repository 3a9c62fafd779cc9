package kubernetes

import (
	"context"
	"sync/atomic"
	"time"
)

// A Driver sweeps at most once in sweepEvery, when it has made a Lease: then there are more than
// before. It is due once a Driver has lived for so long, and for one of sweepNames names at once: of
// programs that live for less some sweep, too.
const (
	sweepEvery = 10 * time.Minute
	sweepNames = 64
	sweepLimit = time.Minute
)

// What nobody has used for so long is deleted. A holder that has died is given much longer, because
// of that only the clocks of API servers tell.
const (
	idleFree = 10 * time.Minute
	idleHeld = 24 * time.Hour
)

// sweeper has a Driver delete the Leases of locks that nobody uses.
type sweeper struct {
	next  atomic.Int64 // when a sweep is due, in nanoseconds since epoch
	first int64        // that of the first
	idle  time.Duration
}

var epoch = time.Now()

func (s *sweeper) begin() {
	s.idle, s.first = idleFree, int64(time.Since(epoch)+sweepEvery)
	s.next.Store(s.first)
}

// sweepIfDue sweeps in a goroutine of its own, after the Lease of name was made.
func (d *Driver) sweepIfDue(name string) {
	now, next := int64(time.Since(epoch)), d.sweeper.next.Load()
	soon := next == d.sweeper.first && hash(name)[0]%sweepNames == 0
	if !soon && now < next || !d.sweeper.next.CompareAndSwap(next, now+int64(sweepEvery)) {
		return
	}
	d.running.Go(func() {
		ctx, cancel := context.WithTimeout(d.ctx, sweepLimit)
		defer cancel()
		_ = d.sweep(ctx) // the next one tries again
	})
}

// sweep deletes Leases that are what they were when it has read them.
func (d *Driver) sweep(ctx context.Context) error {
	for from := ""; ; {
		page, date, err := d.api.list(ctx, from)
		if err != nil {
			return err
		}
		for i := range page.Items {
			o, err := parse(&page.Items[i])
			if err != nil || !(reply{o, date}).unused(d.sweeper.idle) {
				continue
			}
			if err := d.api.remove(ctx, o.lease); err != nil && !changed(err) {
				return err
			}
		}
		if from = page.Continue; from == "" {
			return nil
		}
	}
}

// unused reports whether nobody has written the Lease for a while, after its hold was over.
func (r reply) unused(idle time.Duration) bool {
	at := r.written()
	if r.owner != "" {
		idle = r.ttl + idleHeld
	}
	return !at.IsZero() && !r.date.IsZero() && r.date.Sub(at) > idle
}
