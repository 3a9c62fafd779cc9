// Package multi takes several locks at once: all of them, or none.
//
//	m := multi.New(client, []string{"account/7", "account/9"})
//	err := m.Do(ctx, func(ctx context.Context, h *multi.Hold) error { // ctx is cancelled if one of them is lost
//		return transfer(ctx, h.Token("account/7"), h.Token("account/9"))
//	})
//
// Each name is a lock of its own, and contends with everybody who takes that name, by this package
// or by itself. The names are taken one after another, in the order of their bytes, whatever the
// order in which they are given: so two programs that want A and B never wait for each other. This
// holds for programs that take all their locks in one call. A program that holds a lock already and
// waits for more can still be part of a deadlock.
//
// The locks that are held already are renewed while Acquire waits for the rest, and other programs
// that want these locks wait. Each name costs a round trip to take, and one to release. If you
// always take the same names together, use one name.
package multi

import (
	"context"
	"errors"
	"slices"

	"github.com/go-locker/locker"
)

var errNoNames = errors.New("multi: no names")

// Mutex is the locks of several names. Make one with [New]. It may be used by several goroutines,
// and is not reentrant.
type Mutex struct {
	locks []*locker.Mutex // in the order in which everybody takes them
}

// New returns the locks called names, each with opts. It makes no request. Duplicates count once.
// The Mutex's methods return an error if there are no names, or if a name or an option is not
// valid.
//
// Do not pass [locker.WithoutRenewal]: if a lock expires while Acquire waits for the rest, all are
// taken anew. Nor [locker.AtLeast]: what is given back then stays taken.
func New(c *locker.Client, names []string, opts ...locker.MutexOption) *Mutex {
	m := &Mutex{}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		m.locks = append(m.locks, c.Mutex(name, opts...))
	}
	return m
}

// Acquire waits until all locks are held, or ctx is done. On an error nothing is held. Its errors
// are those of [locker.Mutex.Acquire], and name the lock that failed. If one is lost while the rest
// is awaited, all are given back, and the wait begins anew.
func (m *Mutex) Acquire(ctx context.Context) (*Hold, error) {
	return m.acquire(ctx, (*locker.Mutex).Acquire)
}

// TryAcquire makes one attempt at each lock. If another owner holds one of them, it returns
// ErrHeld, and gives back those that it has taken.
func (m *Mutex) TryAcquire(ctx context.Context) (*Hold, error) {
	return m.acquire(ctx, (*locker.Mutex).TryAcquire)
}

// take is Acquire or TryAcquire of one lock.
type take func(*locker.Mutex, context.Context) (*locker.Hold, error)

func (m *Mutex) acquire(ctx context.Context, one take) (*Hold, error) {
	if len(m.locks) == 0 {
		return nil, errNoNames
	}
	for {
		h := &Hold{}
		err := h.acquireAll(ctx, m.locks, one)
		if err == nil {
			return h, nil
		}
		_ = h.Unlock(ctx)
		if ctx.Err() != nil || !errors.Is(err, locker.ErrLost) {
			return nil, err
		}
	}
}

// Do takes all locks, calls f, waits for it, and releases them. If Acquire fails, Do
// returns its error and does not call f. The context of f ends with ctx, and when one of the locks
// is lost: then with cause ErrLost, no later than the earliest deadline. Do returns f's error
// joined with those of Unlock, as [locker.Mutex.Do] does, so that nil never hides a loss. If f
// panics, Do releases, and the panic goes on. If f calls [locker.Mutex.Join] for one of the names,
// it joins the hold that Do has of this name.
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context, h *Hold) error) error {
	h, err := m.Acquire(ctx)
	if err != nil {
		return err
	}
	return h.during(ctx, f)
}

// during calls f, unlocks, and returns the errors of both. If f panics, the panic goes on.
func (h *Hold) during(ctx context.Context, f func(context.Context, *Hold) error) (err error) {
	own, cancel := h.Context(ctx, 0)
	defer func() {
		cancel()
		for _, ended := range h.unlock(context.WithoutCancel(ctx)) {
			e, ok := errors.AsType[*locker.Error](ended)
			if ok && errors.Is(err, e.Err) { // f has returned this loss: report it once
				err = &locker.Error{Op: e.Op, Name: e.Name, Err: err}
			} else {
				err = errors.Join(err, ended)
			}
		}
	}()
	return f(own, h)
}
