// Package election makes one of many processes the leader, for as long as it lives. As soon as it
// stops, another process leads.
//
//	e := election.New(client, "scheduler", locker.WithMetadata("web-1"))
//	err := e.Lead(ctx, 2*time.Second, func(ctx context.Context, term uint64) {
//		schedule(ctx, term) // returns when ctx ends
//	})
//
// The leader is the holder of a lock. A term is one hold of it, and its number is the fencing
// token: larger than that of every earlier term, in any process. No election can stop a leader that
// is paused past its term and wakes: until it checks, by IsLeader or its context, it acts as if it
// still led. So whatever the leader writes has to carry the term, and the resource has to refuse a
// smaller one than it has seen (package fence).
//
// When the leader stops, by the end of Lead's context or by [Election.Resign], the next one leads
// within milliseconds; when it crashes or is cut off, within a TTL ([locker.WithTTL]).
package election

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
)

// Election is this process's part in an election. Make one with [New]. It may be used by several
// goroutines.
type Election struct {
	client *locker.Client
	lock   *locker.Mutex

	candidate atomic.Bool          // Lead is in progress
	term      atomic.Pointer[term] // what this process leads, or nil
}

// New returns the election called name, which is the name of its lock. It makes no request. Give
// each process a name by [locker.WithMetadata], which [Election.Leader] returns. Lead reports a
// name or an option that is not valid.
func New(c *locker.Client, name string, opts ...locker.MutexOption) *Election {
	return &Election{client: c, lock: c.Mutex(name, opts...)}
}

// rest is how long a candidate waits after its term, for another to have its turn: where waiters
// poll, this one would be the first. It is also the least time between two attempts: a backend that
// fails, or ends every term at once, is not asked in a loop.
const rest = time.Second

var (
	errCandidate = errors.New("election: this Election is a candidate already")
	errResigned  = errors.New("election: resigned")
)

// Lead makes this process a candidate until ctx ends. Whenever this process begins to lead, Lead
// calls lead with the number of the term, and waits until lead returns. The context of lead ends
// with ctx, with Resign, with the loss of the term, or when only reserve is left until another
// process can lead. So lead has that time to return. Renewals begin when two thirds of the TTL are
// left. So choose a reserve of a quarter of the TTL, for example: then the context ends only after
// renewals have failed for some time. When lead has returned, the term ends, and another process
// leads.
//
// After a term, this process waits for a second before it is a candidate again, so that another has
// its turn. If the backend has ended the term early, this process does not wait: it becomes a
// candidate again immediately, but not twice within a second.
//
// Lead returns nil when ctx has ended and another can lead. If it is not certain that another can
// lead, it returns the error of [locker.Hold.Unlock]. It returns ErrClosed if the Client is closed,
// and ErrUnsupported if the backend cannot do what was asked. It returns an error at once if the
// election is not valid, if Lead is under way already, or if the reserve is not shorter than the
// TTL. During an outage Lead goes on; a [locker.Observer] is told of the errors. If lead panics,
// the term ends, and the panic goes on.
func (e *Election) Lead(ctx context.Context, reserve time.Duration, lead func(ctx context.Context, term uint64)) error {
	if e.candidate.Swap(true) {
		return errCandidate
	}
	defer e.candidate.Store(false)
	for first := true; ; first = false {
		over, err := e.once(ctx, reserve, lead)
		if ctx.Err() != nil || permanent(err) || first && err != nil && !e.valid() {
			return err
		}
		select {
		case <-time.After(time.Until(over.Add(rest))):
		case <-ctx.Done():
			return nil
		}
	}
}

// errReserve is matched by the error for a reserve that leaves no time to lead.
var errReserve = errors.New("election: the reserve has to be shorter than the hold")

// permanent reports whether err would come again and again.
func permanent(err error) bool {
	return errors.Is(err, locker.ErrClosed) || errors.Is(err, locker.ErrUnsupported) || errors.Is(err, errReserve)
}

// valid reports whether the lock's name and options are: a Mutex that is not valid has one error
// for whatever is asked. This one is never locked. It makes no request.
func (e *Election) valid() bool {
	return errors.Is(e.lock.Extend(context.Background()), locker.ErrNotHeld)
}

// once leads for one term, and returns since when another could. If nothing has to be left to
// another, that is when it began.
func (e *Election) once(ctx context.Context, reserve time.Duration, lead func(context.Context, uint64)) (over time.Time, err error) {
	began := time.Now()
	h, err := e.lock.Acquire(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return began, nil // it was waiting for its turn
		}
		return began, err
	}
	defer func() {
		if uerr := h.Unlock(context.WithoutCancel(ctx)); err == nil {
			err = uerr
		}
	}()
	now := time.Now()
	if reserve >= h.Deadline().Sub(now) { // on a session that others share, less may be left than the TTL
		switch err := h.Extend(ctx); {
		case ctx.Err() != nil:
			return began, nil
		case err != nil:
			return began, err
		}
	}
	if lasts := h.Deadline().Sub(now); reserve < 0 || reserve >= lasts {
		return began, fmt.Errorf("%w: it is %v, and the hold lasts %v", errReserve, reserve, lasts)
	}
	if reserve >= time.Until(h.Deadline()) {
		return time.Now(), nil // to extend it took too long
	}
	own, end := context.WithCancelCause(ctx)
	own, forget := h.Context(own, reserve)
	e.term.Store(&term{h.Token(), own, end})
	defer func() {
		e.term.Store(nil)
		end(nil)
		forget()
	}()
	lead(own, h.Token())
	now = time.Now()
	deadline := h.Deadline()
	switch {
	case !now.Before(deadline):
		return deadline, nil
	case errors.Is(h.Err(), locker.ErrLost):
		return began, nil // taken or removed
	default:
		return now, nil
	}
}

// IsLeader reports whether this process leads. It makes no request, and looks at the clock. It
// returns false when the reserve of [Election.Lead], or less, is left of the term. This is so even
// right after a pause of the process or of the machine, before any timer has fired.
func (e *Election) IsLeader() bool { return e.Term() != 0 }

// Term returns the number of the term that this process leads, and 0 when it does not lead. See
// [Election.IsLeader].
func (e *Election) Term() uint64 {
	t := e.term.Load()
	if t == nil || t.ctx.Err() != nil {
		return 0
	}
	return t.number
}

// Resign ends the term that this process leads, if any, and does not wait for it. IsLeader returns
// false at once, the context of lead ends, and when lead has returned, another process leads. This
// one becomes a candidate again, as [Election.Lead] says.
func (e *Election) Resign() {
	if t := e.term.Load(); t != nil {
		t.end(errResigned)
	}
}

// term is what this process leads.
type term struct {
	number uint64
	ctx    context.Context // its Err looks at the clock
	end    context.CancelCauseFunc
}
