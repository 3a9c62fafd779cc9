package clock

import (
	"sync/atomic"
	"time"
)

// Deadline is when a hold expires, a reading of Now. It only grows: of two renewals, the one that
// was sent last may be answered first. The zero Deadline has passed. Its methods may be called
// concurrently.
type Deadline struct{ until atomic.Int64 } // nanoseconds since epoch; 0: never extended

// epoch is no deadline of any hold: it is long before the process started. What a synctest bubble
// reads is earlier still.
var epoch = Now().Add(-24 * time.Hour)

// Extend moves d to until, unless it is later already.
func (d *Deadline) Extend(until time.Time) {
	next := int64(until.Sub(epoch))
	for old := d.until.Load(); (old == 0 || next > old) && !d.until.CompareAndSwap(old, next); {
		old = d.until.Load()
	}
}

// Left returns the time until d; 0 or less: it has passed.
func (d *Deadline) Left() time.Duration {
	until := d.until.Load()
	if until == 0 {
		return 0
	}
	return time.Duration(until) - Since(epoch)
}
