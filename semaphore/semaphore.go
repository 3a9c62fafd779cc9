// Package semaphore lets at most n hold a permit at the same time, among many processes.
//
//	s := semaphore.New(client, "exports", 5)
//	err := s.Do(ctx, func(ctx context.Context, p *semaphore.Permit) error { // ctx is cancelled if the permit is lost
//		return export(ctx, p.Slot(), p.Token())
//	})
//
// A semaphore is n slots, and each slot is a lock: those of "exports" are called "exports/0" to
// "exports/4". A [Permit] is a hold of one of them. It expires like any hold, so that a process
// that crashes gives its permit back within a TTL.
//
// # Tokens
//
// Each slot has fencing tokens of its own, and the tokens of two slots cannot be compared. So a
// resource checks a permit's token by its slot: it keeps the largest token of each slot. If it kept
// one for all slots, it would refuse valid holders.
//
// # Different n
//
// Programs may use different n for one name, as during a deployment that changes it: each takes
// slots below its own n alone. No more permits are held at once than the largest n, and programs
// that use the same n never hold more than n together. After n was lowered, permits of higher slots
// last until they are given back.
//
// # What it costs
//
// A permit costs a request for each slot that is tried, from a random one on: one request if all
// slots are free, n if all are held. If all are held, the caller then waits in the queues of all n
// slots, so that no slot is left unused while somebody waits. It enters the queues at the same
// time, and leaves the others when one slot is granted. On Redis a wait makes about 4n requests,
// and takes n goroutines. Where the backend has no queue, a waiter polls n slots.
package semaphore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/go-locker/locker"
)

// Semaphore is n slots of one name. Make one with [New]. It may be used by several goroutines, and
// is not reentrant.
type Semaphore struct {
	slots   []*locker.Mutex
	invalid error // why no method works
}

// New returns the semaphore called name that at most n hold at once. It makes no request. An n
// below 1, and a name or an option that is not valid, are reported by the Semaphore's methods.
func New(c *locker.Client, name string, n int, opts ...locker.MutexOption) *Semaphore {
	s := &Semaphore{}
	switch {
	case n < 1:
		s.invalid = fmt.Errorf("semaphore: n is %d, and must be at least 1", n)
	case name == "":
		s.invalid = errors.New("semaphore: name is empty")
	}
	for i := range n {
		s.slots = append(s.slots, c.Mutex(fmt.Sprintf("%s/%d", name, i), opts...))
	}
	return s
}

// Permit is one of the n holds of a [Semaphore]. Its Unlock gives it back.
type Permit struct {
	hold *locker.Hold
	slot int
}

// Hold returns the hold of the slot's lock, for what Permit itself has no method for.
func (p *Permit) Hold() *locker.Hold { return p.hold }

// Slot returns the number of the permit's slot, from 0 to n-1. No two permits have the same slot at
// the same time, as far as the backend's Guarantees say.
func (p *Permit) Slot() int { return p.slot }

// Token returns the fencing token, which counts for this slot alone.
func (p *Permit) Token() uint64 { return p.hold.Token() }

// Unlock gives the permit back, as [locker.Hold.Unlock] ends a hold.
func (p *Permit) Unlock(ctx context.Context) error { return p.hold.Unlock(ctx) }

// Acquire waits until it has a permit, or ctx is done. Its errors are those of
// [locker.Mutex.Acquire]. If the server of one slot fails for so long that a Lock would give up,
// Acquire returns that error, although the servers of other slots may work.
func (s *Semaphore) Acquire(ctx context.Context) (*Permit, error) {
	p, err := s.TryAcquire(ctx)
	if err == nil || s.invalid != nil || ctx.Err() != nil {
		return p, err
	}
	return s.wait(ctx) // also through a short outage
}

// TryAcquire makes one attempt at each slot, from a random one on, until it has one. It returns
// ErrHeld if all are held, and stops at any other error.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Permit, error) {
	if s.invalid != nil {
		return nil, s.invalid
	}
	var err error
	for i, first := 0, rand.N(len(s.slots)); i < len(s.slots); i++ {
		slot := (first + i) % len(s.slots)
		var h *locker.Hold
		if h, err = s.slots[slot].TryAcquire(ctx); err == nil {
			return &Permit{h, slot}, nil
		}
		if !errors.Is(err, locker.ErrHeld) {
			break
		}
	}
	return nil, err
}

// answer is what came of waiting for one slot.
type answer struct {
	permit *Permit
	err    error
}

// wait stands in the queues of all slots, and leaves them with the first answer. What else it is
// granted meanwhile it gives back.
func (s *Semaphore) wait(ctx context.Context) (*Permit, error) {
	own, leave := context.WithCancel(ctx)
	defer leave()
	answers := make(chan answer, len(s.slots))
	for slot, m := range s.slots {
		go func() {
			h, err := m.Acquire(own)
			if err != nil {
				answers <- answer{err: err}
				return
			}
			answers <- answer{permit: &Permit{h, slot}}
		}()
	}
	first := <-answers
	leave()
	for range len(s.slots) - 1 { // they come within milliseconds
		switch a := <-answers; {
		case a.permit == nil:
		case first.permit == nil:
			first = a
		default:
			_ = a.permit.Unlock(own) // own has ended, so that it is done in the background
		}
	}
	return first.permit, first.err
}

// Do acquires a permit, calls f, waits for it, and gives the permit back. If Acquire fails, Do
// returns its error and does not call f. The context of f ends with ctx, and when the permit is
// lost: then with cause ErrLost, no later than its deadline. Do returns f's error joined with that
// of Unlock, as [locker.Mutex.Do] does, so that nil never hides a loss. If f panics, Do gives the
// permit back, and the panic goes on.
func (s *Semaphore) Do(ctx context.Context, f func(ctx context.Context, p *Permit) error) error {
	p, err := s.Acquire(ctx)
	if err != nil {
		return err
	}
	return p.hold.Do(ctx, func(ctx context.Context) error { return f(ctx, p) })
}
