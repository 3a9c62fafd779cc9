package locker

import (
	"context"
	"math"
	"time"

	"github.com/go-locker/locker/internal/clock"
)

// Observer is told what a [Client] does, for spans and metrics; the module
// github.com/go-locker/locker/otel has one for OpenTelemetry. A function that is nil is not called.
// The others may be called by several goroutines at once, and must not panic.
//
// The goroutine that locks, unlocks or extends calls Start, Done and Held, and at an Unlock also
// Ended, also if this Unlock is the first to hear of a loss. The time that they take delays only
// this goroutine. Renewed, and Ended at any other loss or an Abandon, are called one after another
// by a goroutine of their own. Only Close waits for it, for 5 s at most. So no Observer delays a
// renewal or a loss, and only Start can delay a release.
//
// This package holds no lock of its own while it calls a function of an Observer. So the function
// may call this package, except for Close. Such calls are observed like any other.
type Observer struct {
	// Start is called when a call begins. The call goes on with the context that Start returns, so
	// the Driver and its client library see the values of that context. It has to be derived from
	// ctx. Renewals, and the clean-up after a call that failed, have contexts without values.
	Start func(ctx context.Context, call Call) context.Context

	// Done is called once for each call, right before it returns, with the context that Start
	// returned.
	Done func(ctx context.Context, call Call, result Result)

	// Held is called when a hold has begun, with the context of the call that took it.
	Held func(ctx context.Context, hold HoldID)

	// Ended is called once for each hold for which Held is called. If an Unlock has released the
	// hold, was told of its loss, or has given up, Ended gets the context of that Unlock. After any
	// other loss or an Abandon it is a context without values. If a hold is lost as it begins,
	// Ended may come before Held.
	Ended func(ctx context.Context, hold HoldID, ending HoldEnd)

	// Renewed is called after each automatic renewal that was answered or failed, unless 10,000
	// reports wait for their turn.
	Renewed func(hold HoldID, renewal Renewal)
}

// Call is a use of a [Mutex] or a [Hold].
type Call struct {
	// Op is lock, trylock, rlock, tryrlock, unlock, extend or downgrade, as in Error. Acquire is a
	// lock, TryAcquire a trylock, Do a lock and an unlock, and TryDo a trylock and an unlock;
	// likewise RAcquire, TryRAcquire, RDo and TryRDo. If Join takes the lock, it is observed as Do
	// is. If it joins a hold, it is not observed.
	Op   string
	Name string // of the lock, without the prefix
}

// Result is what came of a [Call].
type Result struct {
	Token     uint64        // of the hold that the Call took or concerned; 0: none
	Contended bool          // a lock or trylock was told, at least once, that another holds the lock
	Took      time.Duration // from the end of Start to the beginning of Done
	Err       error         // what the caller gets
}

// HoldID names a hold.
type HoldID struct {
	Name  string // of the lock, without the prefix
	Token uint64
}

// HoldEnd is how a hold ended.
type HoldEnd struct {
	Cause Cause
	Held  time.Duration // from its grant to its end: the beginning of Unlock, or the loss
	Left  time.Duration // from then to the deadline
}

// Cause is why a hold ended. All but CauseUnlocked and CauseAbandoned are losses.
type Cause string

// The causes.
const (
	CauseUnlocked  Cause = "unlocked"  // its holder called Unlock
	CauseAbandoned Cause = "abandoned" // its holder called Abandon
	CauseExpired   Cause = "expired"   // it was not extended in time
	CauseRevoked   Cause = "revoked"   // the backend said that it had ended: taken, removed, or its session over
	CauseClosed    Cause = "closed"    // the Client was closed
)

// Renewal is an automatic attempt to extend a hold.
type Renewal struct {
	// Lag is how late the request was sent. An extension is due TTL/3 after the last one. While
	// attempts fail, their Lag grows. When Lag comes near TTL·2/3, the hold is lost.
	Lag time.Duration
	Err error // nil: the hold was extended
}

// WithObserver tells o what the Client does. A Client has one Observer, the last one given.
func WithObserver(o Observer) Option {
	return clientOption(func(c *config) error {
		c.observer = o
		return nil
	})
}

// The Ops of a Call.
const (
	opLock      = "lock"
	opTryLock   = "trylock"
	opRLock     = "rlock"
	opTryRLock  = "tryrlock"
	opUnlock    = "unlock"
	opExtend    = "extend"
	opDowngrade = "downgrade"
)

// observed makes a call, tells the Observer of it, and returns the error for its caller.
func (c *Client) observed(ctx context.Context, op, name string, f func(context.Context) Result) error {
	o, call := &c.observers, Call{op, name}
	if o.Start != nil {
		ctx = o.Start(ctx, call)
	}
	if o.Done == nil {
		return wrap(op, name, f(ctx).Err)
	}
	began := clock.Now()
	r := f(ctx)
	r.Err = wrap(op, name, r.Err)
	r.Took = clock.Since(began)
	o.Done(ctx, call, r)
	return r.Err
}

// observers tells the user's Observer, and the logger, what a Client does.
type observers struct {
	Observer

	log  *logger // nil: none
	told reports // to the Observer, of what no caller waits for
}

func (h *Hold) id() HoldID { return HoldID{h.name, h.token} }

// held tells of a hold that has begun. Its caller is one that Close waits for.
func (o *observers) held(ctx context.Context, h *Hold) {
	o.log.held(h)
	if o.Held != nil {
		o.Held(ctx, h.id())
	}
}

// howEnded describes the end of a hold, now, that would have lasted until deadline.
func (h *Hold) howEnded(cause Cause, deadline time.Time) HoldEnd {
	now := clock.Now()
	if !now.Before(deadline) {
		now = deadline // noticed late
	}
	return HoldEnd{Cause: cause, Held: now.Sub(h.began), Left: deadline.Sub(now)}
}

// ended tells of a hold that was lost or abandoned.
func (o *observers) ended(h *Hold, e HoldEnd) {
	o.log.ended(h, e)
	if f := o.Ended; f != nil {
		o.told.add(math.MaxInt, func() { f(context.Background(), h.id(), e) })
	}
}

// renewed tells of a renewal. due reports whether the hold is still to be renewed. The caller holds
// h.mu.
func (o *observers) renewed(h *Hold, r Renewal, due bool) {
	o.log.renewed(h, r, due)
	if f := o.Renewed; f != nil {
		o.told.add(maxReports, func() { f(h.id(), r) })
	}
}

// close waits until all reports are delivered, or until ctx ends, and returns whether all are.
func (o *observers) close(ctx context.Context) bool {
	told := o.log == nil || o.log.records.close(ctx)
	return o.told.close(ctx) && told
}
