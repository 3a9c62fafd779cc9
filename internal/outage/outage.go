// Package outage makes requests again while a backend does not answer, for what an adapter asks
// apart from Claim.Ask, for which the core does that.
package outage

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
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
	// Beside, unless it is nil, has a request made again while the first goes on: a reply that comes
	// late counts. What Ask is given is called by several goroutines at once then.
	Beside *Latency
	// Once has a request that has failed not be made again, but beside another: the core does that.
	Once bool
	// Within makes the context of a request, with a timeout. With Beside it may leave that to Ask.
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
		err := o.request(ctx, left, f)
		switch {
		case err == nil:
			o.since, o.last = time.Time{}, nil
			return nil
		case o.Once:
			return err
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

// request makes a request, for which there is the time left.
func (o *Outage) request(ctx context.Context, left time.Duration, f func(ctx context.Context) error) error {
	if o.Beside == nil {
		rctx, cancel := o.Within(ctx, min(o.patience, left))
		defer cancel()
		return o.Explain(ctx, rctx, f(rctx))
	}
	r := &request{outage: o, caller: ctx, f: f, until: time.Now().Add(left)}
	r.ctx, r.cancel = o.Within(ctx, left)
	defer r.cancel()
	r.patience = max(o.patience, 2*time.Duration(o.Beside.last.Load()))
	r.mu.Lock()
	r.timer = time.AfterFunc(min(r.patience, left), r.again)
	r.mu.Unlock()
	r.make()
	r.mu.Lock() // others may be under way, and one of them be answered
	r.waits = true
	r.mu.Unlock()
	r.others.Wait()
	r.timer.Stop()
	return r.err
}

// request is a request, and what is asked beside it while it is not answered.
type request struct {
	outage *Outage
	caller context.Context
	ctx    context.Context
	cancel context.CancelFunc
	f      func(ctx context.Context) error
	until  time.Time
	others sync.WaitGroup

	mu       sync.Mutex
	timer    *time.Timer
	patience time.Duration
	answered bool
	waits    bool // no more are made
	err      error
}

// make makes the request once. The first answer counts, and ends the others.
func (r *request) make() {
	sent := clock.Now()
	err := r.outage.Explain(r.caller, r.ctx, r.f(r.ctx))
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.answered:
	case err == nil || r.outage.Final(err):
		r.answered, r.err = true, err
		r.outage.Beside.note(clock.Since(sent))
		r.cancel()
	case r.err == nil || err != r.outage.Silence: //nolint:errorlint // one that wraps it has more to say
		r.err = err
	}
}

// again makes it once more, unless it has ended.
func (r *request) again() {
	r.mu.Lock()
	left := time.Until(r.until)
	over := r.answered || left <= 0 || r.ctx.Err() != nil
	more := !over && !r.waits
	switch {
	case over:
		r.cancel()
	case more:
		r.patience += r.patience / 2
		r.timer.Reset(min(r.patience, left))
		r.outage.Answered(r.outage.Silence)
		r.others.Add(1)
	default:
		r.timer.Reset(left)
	}
	r.mu.Unlock()
	if more {
		r.make()
		r.others.Done()
	}
}

// Latency is how long servers have taken to answer lately.
type Latency struct{ last atomic.Int64 }

func (l *Latency) note(took time.Duration) {
	last := time.Duration(l.last.Load())
	l.last.Store(int64(max(took, last-last/4)))
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
