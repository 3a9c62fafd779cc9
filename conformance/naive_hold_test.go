package conformance_test

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/go-locker/locker"
)

func (l *naive) current() *naiveHold {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hold
}

func (l *naive) gone(h *naiveHold) bool { return h.gone(l.flaw != "believes what it knew") }

func (l *naive) Unlock(ctx context.Context) error {
	l.mu.Lock()
	h := l.hold
	l.hold = nil
	l.mu.Unlock()
	if h == nil {
		if l.flaw == "deletes whatever is there" {
			_ = l.release(ctx, &naiveHold{lost: make(chan struct{})})
		}
		return locker.ErrNotHeld
	}
	defer h.timer.Stop()
	if l.gone(h) && l.strict() {
		return locker.ErrLost
	}
	until := h.deadline()
	switch l.flaw {
	case "deletes whatever is there", "looks, then deletes":
		until = time.Now().Add(3 * l.ttl)
	case "an Unlock that fails leaves the hold":
		until = until.Add(-l.ttl / 2)
	case "Unlock of a share goes on for two TTLs":
		until = until.Add(l.ttl)
	}
	limited, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	err := l.release(limited, h)
	switch {
	case err != nil && l.flaw == "Unlock does not look at its answer":
		return nil
	case err != nil && l.flaw == "an Unlock that fails leaves the hold":
		l.mu.Lock()
		defer l.mu.Unlock()
		l.hold = h
		return err
	}
	if err != nil && !errors.Is(err, locker.ErrLost) {
		l.forget(ctx, h.by())
	}
	return err
}

func (l *naive) release(ctx context.Context, h *naiveHold) error {
	q := question{Op: "release", Name: l.name, Owner: h.by(), Shared: l.shared}
	switch l.flaw {
	case "deletes whatever is there":
		q.Op = "delete"
	case "looks, then deletes":
		if !l.look(ctx, h) {
			return locker.ErrLost
		}
		q.Op = "delete"
	case "looks and deletes, back to back":
		switch err := l.own(ctx, h); {
		case err != nil && l.gone(h):
			return errors.Join(locker.ErrLost, err)
		case err != nil:
			return err
		}
		q.Op = "delete"
	}
	a, _, err := l.client.insist(ctx, q, l.ttl/3)
	switch {
	case err != nil && l.gone(h):
		return errors.Join(locker.ErrLost, err)
	case err != nil:
		return err
	case !a.OK && l.flaw == "what was released is not held":
		return locker.ErrNotHeld
	case !a.OK && !strings.HasSuffix(l.flaw, "Unlock is content with nothing"):
		return locker.ErrLost
	}
	return nil
}

// own asks whether the hold is there.
func (l *naive) own(ctx context.Context, h *naiveHold) error {
	a, _, err := l.client.insist(ctx, question{Op: "look", Name: l.name, Owner: h.by()}, l.ttl)
	if err == nil && !a.OK {
		err = locker.ErrLost
	}
	return err
}

// look reports whether the hold is there, and then pauses at the wrong moment: until another has taken over, if one
// does soon.
func (l *naive) look(ctx context.Context, h *naiveHold) bool {
	ctx = context.WithoutCancel(ctx)
	q := question{Op: "look", Name: l.name, Owner: h.by()}
	if a, err := l.client.ask(ctx, q, l.ttl); err != nil || !a.OK {
		return false
	}
	for end := time.Now().Add(2 * l.ttl); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if now, err := l.client.ask(ctx, q, l.ttl); err == nil && !now.OK && now.Token != 0 {
			break
		}
	}
	return true
}

func (l *naive) Extend(ctx context.Context) error {
	h := l.current()
	if h == nil {
		return locker.ErrNotHeld
	}
	if l.flaw == "Extend heeds no limit" {
		ctx = context.WithoutCancel(ctx)
	}
	return l.extend(ctx, h)
}

func (l *naive) extend(ctx context.Context, h *naiveHold) error {
	if l.gone(h) && l.flaw != "extends whatever is there" {
		return locker.ErrLost
	}
	until := h.deadline()
	if l.flaw == "extends whatever is there" {
		until = time.Now().Add(3 * l.ttl)
	}
	limited, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	q := question{Op: "extend", Name: l.name, Owner: h.by(), TTL: l.ttl, Shared: l.shared}
	switch l.flaw {
	case "extends whatever is there":
		q.Op = "prolong"
	case "looks and prolongs, back to back":
		switch err := l.own(limited, h); {
		case errors.Is(err, locker.ErrLost), err != nil && l.gone(h):
			h.lose()
			return locker.ErrLost
		case err != nil:
			return err
		}
		q.Op = "prolong"
	case "Extend sets what is gone":
		q.Op = "set"
	case "a TTL of ten seconds at most":
		q.TTL = min(l.ttl, 10*time.Second)
	case "Extend in whole seconds":
		q.TTL = l.ttl.Truncate(time.Second)
	case "Extend shortens":
		q.TTL = l.ttl / 10
	case "Extend counts before it is answered":
		h.extended(l.until(time.Now()))
	}
	a, before, err := l.client.insist(limited, q, l.ttl/2)
	switch {
	case err != nil && l.gone(h):
		return errors.Join(locker.ErrLost, err)
	case err != nil && l.flaw == "an Extend that fails ends the hold":
		h.lose()
		return err
	case err != nil:
		return err
	case !a.OK:
		h.lose()
		return locker.ErrLost
	case !h.extended(l.until(before)):
		l.forget(ctx, h.by())
		return locker.ErrLost
	}
	return nil
}

// prolong renews a hold until it is lost or unlocked.
func (l *naive) prolong(ctx context.Context, h *naiveHold) {
	if l.flaw != "renewal ends with the ctx of Lock" {
		ctx = l.client.ctx
	}
	every := l.ttl / 3
	switch l.flaw {
	case "renews too late":
		every = l.ttl
	case "renews after Unlock", "renews whatever is there":
		every = l.ttl / 20
	}
	for pause(ctx, every); ctx.Err() == nil; pause(ctx, every) {
		unlocked := l.current() != h
		switch {
		case l.flaw == "renewal ends at its first error" && !unlocked:
			before := time.Now()
			if a, err := l.client.ask(ctx, question{Op: "extend", Name: l.name, Owner: h.by(), TTL: l.ttl}, l.ttl/2); err != nil || !a.OK {
				return
			}
			h.extended(l.until(before))
		case l.flaw == "renews whatever is there" && !unlocked, l.flaw == "renews after Unlock":
			_, _ = l.client.ask(ctx, question{Op: "prolong", Name: l.name, TTL: 10 * l.ttl}, l.ttl)
			h.revive(l.until(time.Now()))
		case unlocked || errors.Is(l.extend(ctx, h), locker.ErrLost):
			return
		}
	}
}

func (l *naive) FencingToken() uint64 {
	if h := l.current(); h != nil && !l.gone(h) {
		return h.token
	}
	return 0
}

func (l *naive) Lost() <-chan struct{} {
	if h := l.current(); h != nil {
		return h.lost
	}
	return nil
}

func (l *naive) Deadline() time.Time {
	if h := l.current(); h != nil {
		return h.deadline()
	}
	return time.Time{}
}
