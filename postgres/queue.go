package postgres

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/outage"
)

// AcquireQueued makes the Driver a driver.Queuer. One statement takes the lock, or joins the queue. A waiter asks again when it is woken, when
// the hold is due to end, and at times: for what wakes it may be lost, and its mark in the queue ends.
func (d *Driver) AcquireQueued(ctx context.Context, req driver.Request, answered func(error)) (driver.Lease, error) {
	if err := d.CheckTTL(req.TTL); err != nil {
		return nil, err
	}
	w := &waiter{lease: d.newLease(req.Name), req: req}
	last := d.seen.recall(w.key)
	w.seen, w.remembers = last.version, last.version > 0 && !last.waited
	woken := d.listener.enter(w.owner)
	defer d.listener.leave(w.owner)
	o := &outage.Outage{
		TTL: req.TTL, Patience: req.TTL / 4, Answered: answered, Within: context.WithTimeout,
		Explain: explain, Final: final, Silence: errSilent,
	}
	for {
		var a answer
		err := o.Ask(ctx, func(ctx context.Context) (err error) {
			a, err = w.ask(ctx)
			return err
		})
		switch {
		case err != nil && !w.known:
			return nil, err
		case err != nil:
			return w.lease, err
		case a.granted:
			w.token = a.token
			d.sweepIfDue()
			return w.lease, nil
		}
		answered(a.held())
		d.listener.need()
		select {
		case <-woken:
		case <-time.After(d.interval(a, req.TTL)):
		case <-ctx.Done():
			return w.lease, ctx.Err()
		}
	}
}

// explain returns what went wrong with a request that was made under rctx, within ctx. Its own time-out is no deadline of the caller's.
func explain(ctx, rctx context.Context, err error) error {
	if err != nil && ctx.Err() == nil && rctx.Err() != nil && errors.Is(err, context.DeadlineExceeded) {
		return errSilent
	}
	return err
}

const errSilent = outage.NoAnswer("the server has not answered in time")

// interval is how soon a waiter looks again if nobody wakes it.
func (d *Driver) interval(a answer, ttl time.Duration) time.Duration {
	longest := min(time.Second+rand.N(500*time.Millisecond), markFor(ttl)/3)
	switch {
	case !d.listener.hears():
		// The more stand before it, the longer it takes.
		return min(longest, time.Duration(1+min(a.before, 20))*100*time.Millisecond+rand.N(100*time.Millisecond))
	case a.before == 0:
		return min(longest, a.left+time.Millisecond)
	default:
		return longest
	}
}

// markFor is how long a waiter counts after it has been heard of.
func markFor(ttl time.Duration) time.Duration {
	return min(5*time.Second, max(ttl, 1500*time.Millisecond))
}

// waiter is an attempt that may wait.
type waiter struct {
	*lease

	req       driver.Request
	remembers bool // that the lock was free, from a release
}

// answer is what the server knows of a waiter, and of the hold that it waits for.
type answer struct {
	granted, queued bool
	token, version  int64
	before          int64 // how many wait who came earlier, the dead included; 0 if all of them are dead
	leftMicros      int64
	left            time.Duration
	owner, metadata []byte
}

// held is the error for what has not been granted.
func (a answer) held() error {
	if a.left == 0 {
		return driver.ErrHeld // nobody holds it, but others came earlier
	}
	return heldBy(a.owner, a.metadata)
}

// ask asks until the lock is granted, or w is in the queue. An answer may be that others were faster, or that the row has to be made.
func (w *waiter) ask(ctx context.Context) (a answer, err error) {
	d := w.driver
	if a.granted, err = w.takeFree(ctx); a.granted || err != nil {
		a.token = w.token
		return a, err
	}
	for ctx.Err() == nil {
		sent := time.Now()
		err = d.row(ctx, d.sql.ask, w.key, w.seen, w.owner, w.req.TTL.Microseconds(), []byte(w.req.Metadata), markFor(w.req.TTL).Microseconds()).
			Scan(&a.granted, &a.queued, &a.token, &a.version, &a.before, &a.leftMicros, &a.owner, &a.metadata)
		a.left = time.Duration(a.leftMicros) * time.Microsecond
		switch {
		case err == nil && a.granted:
			w.lasts(sent, w.req.TTL)
			return a, nil
		case err == nil && a.queued:
			w.known, w.waited = true, true
			return a, nil
		case err == nil:
			w.seen = a.version
			continue
		case !didNothing(err):
			w.known, w.doubtful = true, true
			w.lasts(sent, w.req.TTL) // it may have been granted
			return a, err
		}
		if w.seen, err = d.makeMissing(ctx, w.key, w.req.Name, err); err != nil {
			return a, err
		}
	}
	return a, ctx.Err()
}

// takeFree is a first try for who remembers that the lock was free: take is a statement of half the cost.
func (w *waiter) takeFree(ctx context.Context) (granted bool, err error) {
	if !w.remembers {
		return false, nil
	}
	w.remembers = false
	a, err := w.driver.take(ctx, w.lease, w.req, time.Now())
	switch {
	case err == nil:
		w.seen = a.version
	case errors.Is(err, pgx.ErrNoRows), noTable(err):
		err = nil // ask makes what is missing
	}
	return a.granted, err
}

// final reports whether asking again does not change the error: what the statement, its user or its database are not allowed, or are not.
func final(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || len(e.Code) < 2 { // a proxy may give no code
		return false
	}
	switch e.Code[:2] {
	case "0A", "22", "28", "3D", "3F", "42":
		return true
	}
	return false
}
