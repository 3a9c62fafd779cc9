package locker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// Hold is one tenure of a lock, from its grant to its end, and for ever that one: nothing of it
// speaks for a successor. It may be used by several goroutines. A hold costs no goroutine.
type Hold struct {
	client  *Client
	lease   driver.Lease
	name    string
	ttl     time.Duration
	token   uint64
	renewed bool      // automatically
	began   time.Time // its tenure

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

// Token is the fencing token of this tenure, also after its end.
func (h *Hold) Token() uint64 { return h.token }

// Lost is closed when this hold has ended before its Unlock, no later than Deadline, even when the
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

// Deadline is when the hold lapses unless it is extended, on the clock of [time.Now]. It never
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

// start begins the hold's tenure. It returns false if the Client is closed.
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

// Extend makes the hold last one TTL from now. It returns ErrNotHeld after Unlock, and ErrLost after a loss. See [Locker].
func (h *Hold) Extend(ctx context.Context) error {
	return h.observed(ctx, opExtend, (*Hold).extend)
}

// observed makes a call of which the Observer is told.
func (h *Hold) observed(ctx context.Context, op string, f func(*Hold, context.Context) error) error {
	call := Call{op, h.name}
	ctx, began := h.client.start(ctx, call)
	return h.client.done(ctx, call, began, Result{Token: h.token, Err: f(h, ctx)})
}

func (h *Hold) extend(ctx context.Context) error {
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
	own, cancel := c.requestContext(ctx, h.ttl/2)
	defer cancel()
	forget := h.notifyLost(cancel)
	defer forget()
	sent := clock.Now()
	err := h.extended(sent, ownError(own, h.lease.Extend(own, h.ttl)))
	switch {
	case err == nil, errors.Is(err, ErrLost), errors.Is(err, ErrNotHeld):
		return err
	case errors.Is(h.expireIfDue(), ErrLost):
		return ErrLost
	case ctx.Err() != nil:
		return interrupted(ctx, nil)
	default:
		return err
	}
}

// extended takes in the outcome of a request to extend that was sent at sent. A success moves the
// deadline, and is given back if it came after that.
func (h *Hold) extended(sent time.Time, err error) error {
	if errors.Is(err, ErrLost) {
		h.lose(CauseRevoked)
		return h.over()
	}
	if err != nil {
		h.mu.Lock()
		h.unheard = true
		h.mu.Unlock()
		return err
	}
	now := clock.Now()
	left, dated := remaining(h.lease, h.ttl, sent, now) // asks the lease, so not under h.mu
	if h.prolong(sent, now, left, dated) {
		return nil
	}
	err = h.expireIfDue()
	if errors.Is(err, ErrLost) {
		h.client.spawn(h.giveBack)
	}
	return err
}

// prolong moves the deadline forward. It returns false if the hold is over.
func (h *Hold) prolong(sent, now time.Time, left time.Duration, dated bool) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.state != held || !now.Before(h.deadline) {
		return false
	}
	if deadline := now.Add(left); deadline.After(h.deadline) {
		h.deadline = deadline
		h.renewDue = renewal(now, deadline, h.ttl, dated)
		h.renewAt = h.renewDue
		if soon := now.Add(h.ttl / retriesPerTTL); h.renewAt.Before(soon) {
			h.renewAt = soon // a slow or stingy backend is not to be asked without a pause
		}
		if h.client.renewer.leaptSince(sent) {
			h.renewAt = now
		}
	}
	h.logRenewed()
	h.client.schedule(h, now, h.nextEvent())
	return true
}

// Unlock ends this hold and no other, and returns by the hold's deadline whatever ctx allows. A second
// call returns ErrNotHeld. See [Locker].
func (h *Hold) Unlock(ctx context.Context) error {
	return h.observed(ctx, opUnlock, (*Hold).unlock)
}

func (h *Hold) unlock(ctx context.Context) error {
	c := h.client
	if c.begin() != nil {
		h.lose(CauseClosed)
		_, err := h.markUnlocked()
		return err
	}
	defer c.calls.Done()
	deadline, err := h.markUnlocked()
	if err != nil {
		if errors.Is(err, ErrLost) {
			// It may last at the backend, if only the reply to a renewal was lost.
			c.spawn(h.giveBack)
		}
		return err
	}
	if ended := c.config.observer.Ended; ended != nil {
		defer ended(ctx, h.tenure(), h.howEnded(CauseUnlocked, deadline)) // how it is now; told when the release has been made
	}
	r := h.returning(ctx, deadline)
	var tried error
	if ctx.Err() == nil { // else the Driver may not even ask
		if tried = r.try(); tried == nil || errors.Is(tried, ErrLost) {
			return tried
		}
	}
	r.ctx = context.WithoutCancel(ctx)
	told := make(chan error, 1)
	c.spawn(func() { _ = r.untilAnswered(c.background, tried, told) })
	lapsed := time.NewTimer(deadline.Sub(clock.Now()))
	defer lapsed.Stop()
	select {
	case err = <-told:
	case <-ctx.Done():
		return interrupted(ctx, nil)
	case <-lapsed.C:
		err = errors.New("the backend has not answered by then")
	}
	if err != nil && !errors.Is(err, ErrLost) && !clock.Now().Before(deadline) {
		err = fmt.Errorf("%w: not released by its deadline: %w", ErrLost, err)
	}
	return err
}

// markUnlocked makes an Unlock the hold's end, and returns the deadline to meet, or why there was nothing to unlock.
func (h *Hold) markUnlocked() (time.Time, error) {
	_ = h.expireIfDue()
	h.mu.Lock()
	defer h.mu.Unlock()
	was := h.state
	h.state = unlocked
	switch was {
	case unlocked:
		return time.Time{}, ErrNotHeld
	case lost:
		return time.Time{}, ErrLost
	default:
		h.client.unschedule(h)
		return h.deadline, nil
	}
}
