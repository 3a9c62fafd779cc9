package locker

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/go-locker/locker/internal/clock"
)

// Observer is told what a [Client] does, for spans and metrics; the module github.com/go-locker/locker/otel
// has one for OpenTelemetry. A function that is nil is not called. The others may be called by several
// goroutines at once, and must not panic.
//
// Start, Done and Held are called by the goroutine that locks, unlocks or extends, and so is Ended at an
// Unlock: the time that they take is their caller's, and nobody else's. Renewed, and Ended at a loss or an Abandon, are called
// one after another by a goroutine that nothing waits for but Close, for its 5 s at most. So no Observer
// delays a renewal or a loss, nor, but for Start, a release.
//
// None is called with a lock of this package held: they may call it, except for Close. Calls of theirs are
// observed like any other.
type Observer struct {
	// Start is called when a call begins. The context that it returns, which has to be derived from
	// ctx, is that of the call: the Driver sees its values, and the client library below it.
	// Renewals, and the cleaning up after a call that failed, have contexts without values.
	Start func(ctx context.Context, call Call) context.Context

	// Done is called once for each call, right before it returns, with the context that Start
	// returned.
	Done func(ctx context.Context, call Call, result Result)

	// Held is called when a hold has begun, with the context of the call that took it.
	Held func(ctx context.Context, hold HoldID)

	// Ended is called once for each hold of which Held is: when its Unlock has released it or given
	// up, with the context of that, or after its loss or Abandon, with one without values. Of a hold that is
	// lost as it begins Ended may come first.
	Ended func(ctx context.Context, hold HoldID, ending HoldEnd)

	// Renewed is called after each automatic renewal that was answered or failed, unless 10,000
	// reports wait for their turn.
	Renewed func(hold HoldID, renewal Renewal)
}

// Call is a use of a [Mutex] or a [Hold].
type Call struct {
	// Op is lock, trylock, rlock, tryrlock, unlock, extend or downgrade, as in Error. Acquire is a lock, TryAcquire a trylock, Do
	// a lock and an unlock, and TryDo a trylock and an unlock; likewise RAcquire, TryRAcquire, RDo and TryRDo. Join is like Do, or no call if it joins.
	Op   string
	Name string // of the lock, without the prefix
}

// Result is what came of a [Call].
type Result struct {
	Token     uint64        // of the hold that it took or concerned; 0: none
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
	// Lag is how long after it was due the request was sent. What is due is the extension, TTL/3
	// after the last one: while attempts fail their lag grows, and near TTL·2/3 the hold is lost.
	Lag time.Duration
	Err error // nil: the hold was extended
}

// WithObserver has o told what the Client does. A Client has one Observer, the last one given.
func WithObserver(o Observer) Option {
	return clientOption(func(c *config) error {
		c.observer = o
		return nil
	})
}

// The Ops of a Call.
const (
	opLock     = "lock"
	opTryLock  = "trylock"
	opRLock    = "rlock"
	opTryRLock = "tryrlock"
	opUnlock   = "unlock"
	opExtend   = "extend"

	opDowngrade = "downgrade"
)

// observed makes a call, tells the Observer of it, and returns the error for its caller.
func (c *Client) observed(ctx context.Context, op, name string, f func(context.Context) Result) error {
	o, call := &c.config.observer, Call{op, name}
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

func (h *Hold) id() HoldID { return HoldID{h.name, h.token} }

// observeHeld tells of a hold that has begun.
func (h *Hold) observeHeld(ctx context.Context) {
	if f := h.client.config.observer.Held; f != nil {
		f(ctx, h.id())
	}
}

// howEnded describes the end of a hold, now, that would have lasted until deadline.
func (h *Hold) howEnded(cause Cause, deadline time.Time) HoldEnd {
	now := clock.Now()
	left := deadline.Sub(now)
	if left < 0 {
		now, left = deadline, 0 // noticed late
	}
	return HoldEnd{Cause: cause, Held: now.Sub(h.began), Left: left}
}

// observeEnded tells of a hold that was lost or abandoned.
func (h *Hold) observeEnded(e HoldEnd) {
	if f := h.client.config.observer.Ended; f != nil {
		h.client.told.add(math.MaxInt, func() { f(context.Background(), h.id(), e) })
	}
}

// observeRenewed tells of a renewal.
func (h *Hold) observeRenewed(r Renewal) {
	if f := h.client.config.observer.Renewed; f != nil {
		h.client.told.add(maxReports, func() { f(h.id(), r) })
	}
}

// maxReports is how many reports wait for a handler that is slow, or stuck, before others are dropped.
const maxReports = 10_000

// reports makes reports one after another, in a goroutine that is there while there are any: so
// nothing that is to be reported, such as the loss of many holds, waits for a slow handler.
type reports struct {
	mu      sync.Mutex
	waiting []func()
	running bool
	closed  bool
	work    sync.WaitGroup // of the goroutine
}

// add has report called after those that were added before. It returns false, and drops it, if limit of them
// wait already; and does nothing once closed.
func (r *reports) add(limit int, report func()) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return true
	}
	if len(r.waiting) >= limit {
		return false
	}
	r.waiting = append(r.waiting, report)
	if !r.running {
		r.running = true
		r.work.Go(r.run)
	}
	return true
}

func (r *reports) run() {
	for {
		r.mu.Lock()
		batch := r.waiting
		r.waiting = nil
		r.running = len(batch) > 0
		r.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		for _, report := range batch {
			report()
		}
	}
}

// close waits for what has been added, or until ctx ends, which is false.
func (r *reports) close(ctx context.Context) bool {
	r.mu.Lock()
	r.closed = true
	running := r.running
	r.mu.Unlock()
	if !running {
		r.work.Wait() // for its very end; ctx may have ended before us
		return true
	}
	return returns(ctx, r.work.Wait)
}

// log reports to the program's people what no caller hears of.
func (c *Client) log(level slog.Level, msg string, attrs ...slog.Attr) {
	logger := c.config.logger
	if logger == nil {
		return
	}
	record := slog.NewRecord(time.Now(), level, msg, 0) // of now, however late it is handled
	record.AddAttrs(attrs...)
	dropped := c.unlogged.Swap(0)
	if dropped > 0 {
		record.AddAttrs(slog.Int64("dropped", dropped))
	}
	if !c.logs.add(maxReports, func() {
		// Enabled, too, may take its time.
		if h := logger.Handler(); h.Enabled(context.Background(), level) {
			_ = h.Handle(context.Background(), record)
		}
	}) {
		c.unlogged.Add(dropped + 1)
	}
}

func (h *Hold) log(level slog.Level, msg string, attrs ...slog.Attr) {
	h.client.log(level, msg, append([]slog.Attr{slog.String("name", h.name), slog.Uint64("token", h.token)}, attrs...)...)
}

func (h *Hold) logLost(e HoldEnd) {
	level := slog.LevelWarn
	if e.Cause == CauseClosed {
		level = slog.LevelInfo // by the program itself
	}
	h.log(level, "lock lost", slog.String("cause", string(e.Cause)), slog.Duration("held", e.Held))
}

// logNotRenewed logs that renewals begin to fail. The caller holds h.mu.
func (h *Hold) logNotRenewed(err error) {
	if h.failed++; h.failed == 1 {
		h.log(slog.LevelWarn, "lock not renewed",
			slog.Duration("expires_in", h.deadline.Sub(clock.Now())), slog.Any("err", err))
	}
}

// logRenewed logs that they succeed again. The caller holds h.mu.
func (h *Hold) logRenewed() {
	if h.failed > 0 {
		h.log(slog.LevelInfo, "lock renewed again", slog.Int("failed", h.failed))
		h.failed = 0
	}
}

// logOutcome logs a release that has not succeeded at once.
func (r *releaser) logOutcome() {
	late, never := slog.LevelInfo, slog.LevelWarn
	if r.hold.began.IsZero() {
		late, never = slog.LevelDebug, slog.LevelDebug // perhaps there was nothing; in an outage each attempt leaves one behind
	}
	name, after := slog.String("name", r.hold.name), slog.Duration("after", clock.Since(r.began))
	switch {
	case r.err == nil && r.tries > 1:
		r.hold.client.log(late, "lock released late", name, after)
	case r.err != nil && !errors.Is(r.err, ErrLost):
		r.hold.client.log(never, "lock not released", name, after, slog.Any("err", r.err))
	}
}
