package locker

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// Hold is one hold of a lock, from its grant to its end. A later hold of the same name is another Hold. It may be used by several
// goroutines. A hold costs no goroutine.
type Hold struct {
	client  *Client
	lease   driver.Lease
	name    string
	ttl     time.Duration
	token   uint64
	renewed bool // automatically
	began   time.Time

	mu       sync.Mutex
	state    state
	deadline time.Time     // of package clock; the hold is over then, whatever the state says
	renewDue time.Time     // when the renewal is that the deadline asks for
	renewAt  time.Time     // when the next attempt at one is
	lost     chan struct{} // closed by lose; nil if nobody has asked for it
	mutex    *Mutex        // whose own it is, or nil
	onLoss   []*func()     // called once, after lost is closed
	failed   int           // renewals, since one succeeded

	unheard   bool // an extension may have succeeded, and nobody heard of it
	givenBack bool // see giveBack

	// The renewer's own, guarded by its mutex.
	due   time.Time // when the hold must be looked after
	ends  time.Time // deadline
	place int       // in the renewer's heap; -1: not in it
}

type state int

const (
	held     state = iota
	lost           // ended before its Unlock, which is still to come
	unlocked       // and nothing more will happen
)

// Token returns the fencing token of this hold, also after its end.
func (h *Hold) Token() uint64 { return h.token }

// Lost returns a channel that is closed when this hold has ended before its Unlock, no later than Deadline, even when the
// backend cannot be reached.
func (h *Hold) Lost() <-chan struct{} {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.lostChannel()
}

// lostChannel makes the channel when it is needed first. The caller holds h.mu.
func (h *Hold) lostChannel() chan struct{} {
	if h.lost == nil {
		h.lost = make(chan struct{})
	}
	return h.lost
}

// Deadline returns when the hold expires unless it is extended, on the clock of [time.Now]. It never
// moves backwards. On Linux a suspended machine's time counts, and shows as an earlier Deadline
// after the resume; elsewhere it does not, and the hold may have expired at the backend before its
// Deadline on a machine that was suspended. On no system does the time count for which a machine was
// frozen from outside, as a virtual machine is that its host pauses. If the wall clock is right after the resume, a
// renewal is sent within a second, and ends a hold that has expired.
func (h *Hold) Deadline() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return clock.Local(h.deadline)
}

// start begins the hold. It returns false if the Client is closed.
func (h *Hold) start(now time.Time, left time.Duration, dated bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began, h.deadline = now, now.Add(left)
	h.renewDue = renewal(now, h.deadline, h.ttl, dated)
	h.renewAt = h.renewDue
	if sent := h.deadline.Add(drift(h.ttl) - h.ttl); h.client.renewer.leaptSince(sent) {
		h.renewAt = now
	}
	return h.client.schedule(h, now, h.nextEvent())
}

// nextEvent is when the hold must be looked after next. The caller holds h.mu.
func (h *Hold) nextEvent() time.Time {
	if h.renewed && h.renewAt.Before(h.deadline) {
		return h.renewAt
	}
	return h.deadline
}

// expireIfDue loses the hold if its deadline has passed by the clock: a timer may be late. It returns what over does then.
func (h *Hold) expireIfDue() error {
	h.mu.Lock()
	due := h.state == held && !clock.Now().Before(h.deadline)
	h.mu.Unlock()
	if due {
		h.lose(CauseExpired)
	}
	return h.over()
}

// over returns nil while the hold lasts, ErrLost after a loss, and ErrNotHeld after its Unlock.
func (h *Hold) over() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch h.state {
	case held:
		return nil
	case lost:
		return ErrLost
	default:
		return ErrNotHeld
	}
}

// lose ends the hold before its Unlock, if it still lasts, and tells everyone who listens. It does
// not block, and may be called by any goroutine.
func (h *Hold) lose(why Cause) {
	h.mu.Lock()
	if h.state != held {
		h.mu.Unlock()
		return
	}
	h.state = lost
	h.client.unschedule(h)
	close(h.lostChannel())
	mutex, onLoss, end := h.mutex, h.onLoss, h.howEnded(why, h.deadline)
	h.onLoss = nil
	h.mu.Unlock()
	if mutex != nil {
		mutex.lostPending(h)
	}
	for _, f := range onLoss {
		(*f)()
	}
	h.tellLost(end)
	h.logLost(end)
	if why == CauseExpired {
		time.AfterFunc(drift(h.ttl), h.abandon)
	}
}

// abandon releases an expired hold whose lease goes on, or may: on a session that others share, or after an extension that nobody
// heard of. Nobody may ever unlock it. Others expire at the backend by themselves.
func (h *Hold) abandon() {
	c := h.client
	if c.begin() != nil {
		return
	}
	defer c.calls.Done()
	h.mu.Lock()
	unheard := h.unheard
	h.mu.Unlock()
	if unheard || h.lease.Validity() > 0 {
		h.giveBack()
	}
}

// giveBack releases a lost hold whose lease may go on at the backend, once.
func (h *Hold) giveBack() {
	h.mu.Lock()
	again := h.givenBack
	h.givenBack = true
	h.mu.Unlock()
	if !again {
		c := h.client
		_ = h.returning(context.Background(), clock.Now().Add(h.ttl)).untilAnswered(c.open, nil, nil)
	}
}

// belongsTo has m told when the hold is lost, or now if it is already.
func (h *Hold) belongsTo(m *Mutex) {
	h.mu.Lock()
	h.mutex = m
	gone := h.state == lost
	h.mu.Unlock()
	if gone {
		m.lostPending(h)
	}
}

// notifyLost has f called when the hold is lost, or now if it is already. stop undoes that.
func (h *Hold) notifyLost(f func()) (stop func()) {
	h.mu.Lock()
	h.onLoss = append(h.onLoss, &f)
	gone := h.state == lost
	h.mu.Unlock()
	if gone {
		f()
	}
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.onLoss = slices.DeleteFunc(h.onLoss, func(other *func()) bool { return other == &f })
	}
}

// observed makes a call of which the Observer is told.
func (h *Hold) observed(ctx context.Context, op string, f func(*Hold, context.Context) error) error {
	call := Call{op, h.name}
	ctx, began := h.client.start(ctx, call)
	return h.client.done(ctx, call, began, Result{Token: h.token, Err: f(h, ctx)})
}
