package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// Hold is one hold of a lock, from its grant to its end. A later hold of the same name is another
// Hold. It may be used by several goroutines. A hold costs no goroutine.
type Hold struct {
	lockID

	lease   driver.Claim
	ttl     time.Duration
	token   uint64
	renewed bool // by the renewer

	// Set when the hold begins:
	began     time.Time
	keptUntil time.Time // by AtLeast, even if the hold is unlocked earlier; zero: it is not

	mu       sync.Mutex
	state    state
	loss     error         // why it was lost
	shared   bool          // it is a share
	deadline time.Time     // by package clock; then the hold has expired, whatever the state says
	renewDue time.Time     // when the renewal of this deadline is due
	renewAt  time.Time     // when its next attempt is
	mutex    *Mutex        // whose own hold it is, or nil
	failed   int           // renewals that failed in a row; for the logger
	working  int           // contexts under which work goes on
	idle     chan struct{} // closed when working falls to 0; nil unless Close waits for that

	lost    chan struct{} // closed by lose; nil if nobody has asked for it
	wanted  chan struct{} // closed when somebody waits; nil if nobody has asked for it
	endings []*ending     // callbacks at the end, or at a reserve before it

	extendInDoubt atomic.Bool // the outcome of some extension is unknown
	cleaned       atomic.Bool // cleanUp was called

	// The renewer's mutex guards:
	due   time.Time // when the hold's next event is
	ends  time.Time // a copy of deadline
	place int       // index in the renewer's heap; -1: not in it
}

type state uint8

const (
	held     state = iota
	lost           // ended before its Unlock, which is still awaited
	unlocked       // by Unlock or Abandon; final
)

// Token returns the fencing token of this hold, also after its end.
func (h *Hold) Token() uint64 { return h.token }

// Err returns nil while the hold lasts, ErrLost after a loss, and ErrNotHeld after Unlock. It makes
// no request, and looks at the clock: from the Deadline on it returns ErrLost, even if a pause of
// the process has kept every timer from firing.
func (h *Hold) Err() error { return h.expireIfDue() }

// Lost returns a channel that is closed when this hold is lost: when it has ended before its
// Unlock. The channel is closed by Deadline at the latest, even if the backend cannot be reached.
// Each call of Lost looks at the clock, as Err does. A channel that was returned earlier is closed
// when a timer fires.
func (h *Hold) Lost() <-chan struct{} {
	_ = h.expireIfDue()
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lostChannel()
}

// lostChannel makes the channel when it is first needed. The caller holds h.mu.
func (h *Hold) lostChannel() chan struct{} {
	if h.lost == nil {
		h.lost = make(chan struct{})
	}
	return h.lost
}

// Deadline returns when the hold expires unless it is extended, on the clock of [time.Now]. It
// never moves backwards, with one exception.
//
// The exception is a machine that is suspended, on Linux. The TTL goes on meanwhile, but the
// monotonic clock of [time.Now] stands still. So after the resume, Deadline returns a time that is
// earlier on this clock, by the length of the suspension. On other systems this process does not
// see how long the suspension lasted, and the hold may have expired at the backend before its
// Deadline. If a host pauses a virtual machine, no system counts that time, and the hold may have
// expired before its Deadline. If the wall clock is correct after the resume, the hold is renewed
// within a second. If it had expired at the backend, it ends then.
func (h *Hold) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return clock.Local(h.deadline)
}

// begin starts the hold that a request, sent at the given time, was granted. It returns an error if
// the grant must not be used.
func (h *Hold) begin(sent time.Time, atLeast time.Duration) error {
	token, now := h.lease.Token(), clock.Now()
	left, capped := remaining(h.lease, h.ttl, sent, now)
	if token == 0 {
		return errors.New("the Driver granted the fencing token 0")
	}
	if left < h.ttl/2 {
		return fmt.Errorf("%w: %v of the TTL of %v left, which is less than half", errLate, left, h.ttl)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.token = h.client.config.tokenBase + token
	if atLeast > 0 {
		h.keptUntil = now.Add(atLeast)
	}
	h.setDeadline(now, now, left, capped)
	if !h.client.schedule(h, now, h.nextEvent()) {
		return ErrClosed
	}
	h.began = now
	return nil
}

// setDeadline sets the deadline, and when the next renewal is due: as soon as it may be, if the
// wall clock has leapt since the lease was confirmed. The caller holds h.mu.
func (h *Hold) setDeadline(now, soonest time.Time, left time.Duration, capped bool) {
	h.deadline = now.Add(left)
	h.renewDue = renewal(now, h.deadline, h.ttl, capped)
	h.renewAt = h.renewDue
	confirmed := h.deadline.Add(drift(h.ttl) - h.ttl)
	if h.renewAt.Before(soonest) || h.client.renewer.leaptSince(confirmed) {
		h.renewAt = soonest
	}
}

// nextEvent returns the time of the hold's next event: its deadline, its renewal, or the reserve of
// a context. The caller holds h.mu.
func (h *Hold) nextEvent() time.Time {
	next := h.deadline
	if h.renewed && h.renewAt.Before(next) {
		next = h.renewAt
	}
	for _, e := range h.endings {
		if at := h.deadline.Add(-e.reserve); at.Before(next) {
			next = at
		}
	}
	return next
}

// expireIfDue checks the clock, because a timer may be late. It loses the hold if the deadline has
// passed, and ends the contexts whose reserve is reached. Then it returns nil while the hold lasts,
// ErrLost after a loss, and ErrNotHeld after its Unlock.
func (h *Hold) expireIfDue() error {
	for {
		var reached []*ending
		h.mu.Lock()
		state, loss, now := h.state, h.loss, clock.Now()
		due := !now.Before(h.deadline)
		if state == held && !due {
			reached = h.reserved(now)
		}
		h.mu.Unlock()
		switch {
		case state == lost:
			return loss
		case state == unlocked:
			return ErrNotHeld
		case !due:
			for _, e := range reached {
				e.tell(h.reachedReserve(e.reserve))
			}
			return nil
		}
		h.lose(CauseExpired)
	}
}

// lose ends the hold before its Unlock, and notifies all concerned. If the hold has ended already
// it only reports whether that was a loss. It does not block, and may be called by any goroutine.
func (h *Hold) lose(why Cause) bool {
	h.mu.Lock()
	if h.state != held {
		defer h.mu.Unlock()
		return h.loss != nil
	}
	h.state, h.loss = lost, &lossError{why}
	h.client.unschedule(h)
	close(h.lostChannel())
	loss, mutex, end := h.loss, h.mutex, h.howEnded(why, h.deadline)
	h.mu.Unlock()
	if mutex != nil {
		mutex.lost(h)
	}
	h.tellEndings(loss)
	h.client.observers.ended(h, end)
	if why == CauseExpired {
		h.cleanUpAfter(drift(h.ttl))
	}
	return true
}

// lossError is the ErrLost of one hold.
type lossError struct{ cause Cause }

func (e *lossError) Error() string {
	switch e.cause {
	case CauseExpired:
		return ErrLost.Error() + ": it was not extended in time"
	case CauseClosed:
		return ErrLost.Error() + ": " + ErrClosed.Error()
	default:
		return ErrLost.Error() + ": it had ended at the backend"
	}
}

// Unwrap returns ErrLost.
func (e *lossError) Unwrap() error { return ErrLost }

// Extend makes the hold last one TTL from now. It takes TTL/2 at most. It returns ErrNotHeld after
// Unlock, and ErrLost after a loss. After any other error the old deadline stands. See [Locker].
func (h *Hold) Extend(ctx context.Context) error {
	return h.client.observed(ctx, opExtend, h.name, func(ctx context.Context) Result {
		return Result{Token: h.token, Err: h.extend(ctx)}
	})
}

func (h *Hold) extend(ctx context.Context) error {
	return h.whileHeld(ctx, func(r *request) error {
		sent := clock.Now()
		return h.extended(sent, r.explain(h.lease.Extend(r, h.ttl)))
	})
}

// whileHeld makes a request that concerns the hold, for TTL/2 at most. It returns ErrLost or
// ErrNotHeld if the hold is over, before the request or after it. A loss ends the request.
func (h *Hold) whileHeld(ctx context.Context, send func(*request) error) error {
	if err := h.expireIfDue(); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return interrupted(ctx, nil)
	}
	c := h.client
	if c.begin() != nil {
		return ErrLost // Close ends every hold
	}
	defer c.calls.Done()
	r := newRequest(ctx, c.background, h.ttl/2)
	defer r.end()
	e := &ending{tell: func(cause error) {
		if errors.Is(cause, ErrLost) { // after an Unlock the request goes on: to end it would cost a connection
			r.end()
		}
	}}
	h.atEnd(e)
	defer h.forget(e)
	err := send(r)
	switch over := h.expireIfDue(); {
	case over != nil:
		return over
	case err != nil && ctx.Err() != nil:
		return interrupted(ctx, nil)
	default:
		return err
	}
}

// extended handles the outcome of an extension that was sent at the given time. A success moves the
// deadline. If it came after the hold had ended, the lease is released.
func (h *Hold) extended(sent time.Time, err error) error {
	if errors.Is(err, ErrLost) {
		h.lose(CauseRevoked)
		return h.expireIfDue()
	}
	if err != nil {
		h.extendInDoubt.Store(true)
		return err
	}
	now := clock.Now()
	left, capped := remaining(h.lease, h.ttl, sent, now) // asks the lease, so not under h.mu
	if h.prolong(sent, now, left, capped) {
		return nil
	}
	err = h.expireIfDue()
	if errors.Is(err, ErrLost) && !h.endedByClose(now) {
		h.client.spawn(h.cleanUp)
	}
	return err
}

// endedByClose reports whether Close has ended a lost hold before its deadline. Then it is for
// Close to release the hold, when the work under it has returned.
func (h *Hold) endedByClose(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.client.open.Err() != nil && now.Before(h.deadline)
}

// prolong moves the deadline forward. It returns false if the hold is over.
func (h *Hold) prolong(sent, now time.Time, left time.Duration, capped bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != held || !now.Before(h.deadline) {
		return false
	}
	if now.Add(left).After(h.deadline) {
		soonest := now
		if !h.client.renewer.leaptSince(sent) {
			// At least a pause, if the reply was slow or has prolonged the lease by little.
			soonest = now.Add(h.ttl / retriesPerTTL)
		}
		h.setDeadline(now, soonest, left, capped)
	}
	h.client.schedule(h, now, h.nextEvent())
	return true
}
