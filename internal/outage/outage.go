// Package outage makes requests again while a backend does not answer, for what ZooKeeper's adapter
// asks apart from Claim.Ask, for which the core does that.
package outage

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/go-locker/locker/internal/clock"
)

// NoAnswer is the error of a request that was not answered in time. Its value is the text.
type NoAnswer string

// Error returns the text.
func (e NoAnswer) Error() string { return string(e) }

// Timeout returns true, as such errors of package net do.
func (NoAnswer) Timeout() bool { return true }

// Outage is for how long the requests of one call have been failing.
type Outage struct {
	TTL      time.Duration
	Answered func(error) // told of each failure

	// Patience is how long a request may take before it is made again, perhaps at another server: one that hangs must not use up
	// the time in which another could answer. Each time it is half as long again, for they may all be slow.
	Patience time.Duration
	// Within makes the context of a request, with a timeout.
	Within func(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc)
	// Explain is the error of a request that was made under rctx, within ctx.
	Explain func(ctx, rctx context.Context, err error) error
	// Final reports whether an error is an answer, which asking again does not change.
	Final func(error) bool
	// Silence is the error that does not say what is wrong: one that does is the better reason.
	Silence error

	since    time.Time // when the first was sent that has failed since the last answer
	last     error     // the latest failure since then that says why
	patience time.Duration
}

// Ask makes a request, and makes it again while nobody answers, for at most a little less than half a TTL. f returns when
// its context ends, and what it asks for may be asked for twice.
func (o *Outage) Ask(ctx context.Context, f func(ctx context.Context) error) error {
	for {
		sent, left := clock.Now(), rideOut(o.TTL)
		if o.since.IsZero() {
			o.patience = o.Patience
		} else {
			left -= sent.Sub(o.since)
			o.patience += o.patience / 2
		}
		rctx, cancel := o.Within(ctx, min(o.patience, left))
		err := o.Explain(ctx, rctx, f(rctx))
		cancel()
		switch {
		case err == nil:
			o.since, o.last = time.Time{}, nil
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case o.Final(err):
			return err
		}
		if o.last == nil || err != o.Silence { //nolint:errorlint // one that wraps it has more to say
			o.last = err
		}
		o.Answered(o.last)
		if o.since.IsZero() {
			o.since = sent
		}
		pause := Pause(o.TTL)
		if clock.Since(o.since)+pause >= rideOut(o.TTL) {
			return o.last
		}
		if err := clock.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// rideOut is how long an outage may last. It is a little less than the half TTL that the core waits for an attempt, so
// that it hears why this one failed.
func rideOut(ttl time.Duration) time.Duration { return ttl / 20 * 9 }

// Pause is how long to wait before a request that failed is made again.
func Pause(ttl time.Duration) time.Duration {
	d := min(ttl/100, 200*time.Millisecond)
	return d/2 + rand.N(d)
}

// TTL is that of an Outage for a call that concerns no hold, and has until the end of ctx, or half of d if that has no
// deadline: it rides out a little less.
func TTL(ctx context.Context, d time.Duration) time.Duration {
	if deadline, ok := ctx.Deadline(); ok {
		d = 2 * time.Until(deadline)
	}
	return max(d, time.Millisecond)
}
