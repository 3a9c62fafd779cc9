package locker

import (
	"context"
	"errors"
	"time"

	"github.com/go-locker/locker/internal/clock"
)

// Extend makes the hold last one TTL from now. It takes TTL/2 at most. It returns ErrNotHeld after Unlock, and ErrLost after a loss.
// After any other error the old deadline stands. See [Locker].
func (h *Hold) Extend(ctx context.Context) error {
	return h.client.observed(ctx, opExtend, h.name, func(ctx context.Context) Result {
		return Result{Token: h.token, Err: h.extend(ctx)}
	})
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
	forget := h.atEnd(0, func(cause error) {
		if errors.Is(cause, ErrLost) { // after an Unlock the request goes on: to end it would cost a connection
			cancel()
		}
	})
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
		return h.expireIfDue()
	}
	if err != nil {
		h.unheard.Store(true)
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
