package recipes

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/semaphore"
)

var semaphoreScenarios = []scenario{{
	name:    "semaphore: at most n hold",
	promise: "At most n hold at once, each a slot of its own, and the tokens of a slot rise.",
	check:   atMostN,
}, {
	name:    "semaphore: a slot that is freed is used",
	promise: "No slot is left unused while somebody waits.",
	check:   freedSlotIsUsed,
}, {
	name:    "semaphore: waiters that leave leak no permit",
	promise: "No permit is leaked, however waiters come, leave and are served.",
	check:   leakNoPermit,
}, {
	name:    "semaphore: a permit expires",
	promise: "A process that crashes gives its permit back within a TTL.",
	check:   permitExpires,
}}

// slots is how many the semaphores of these scenarios have.
const slots = 3

// take takes n permits, one after another.
func (e *env) take(s *semaphore.Semaphore, n int) ([]*semaphore.Permit, error) {
	var permits []*semaphore.Permit
	for range n {
		p, err := persist(e, s.Acquire)
		if err != nil {
			return nil, fmt.Errorf("%d of %d permits were free: %w", len(permits), n, err)
		}
		permits = append(permits, p)
	}
	return permits, nil
}

// allFree returns an error unless all permits are free, and no more.
func (e *env) allFree(name string) error {
	s := semaphore.New(e.client(e.long), name, slots)
	permits, err := e.take(s, slots)
	if err != nil {
		return err
	}
	if p, err := s.TryAcquire(e.Context()); err == nil {
		return fmt.Errorf("all %d slots are held, and another has slot %d", slots, p.Slot())
	}
	for _, p := range permits {
		err = errors.Join(err, p.Unlock(e.Context()))
	}
	return err
}

func atMostN(e *env) error {
	name, turns, ctx := e.fresh("semaphore"), newTurns(), e.within(e.patient)
	var programs []func() error
	for range 2 * slots {
		s := semaphore.New(e.client(e.long), name, slots)
		programs = append(programs, func() error {
			for range 4 {
				err := s.Do(ctx, func(_ context.Context, p *semaphore.Permit) error {
					slot := fmt.Sprint("slot ", p.Slot())
					if err := turns.enter(slot, p.Token()); err != nil {
						return err
					}
					defer turns.leave(slot)
					time.Sleep(time.Millisecond)
					return nil
				})
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all(programs...); err != nil {
		return err
	}
	return e.allFree(name)
}

func freedSlotIsUsed(e *env) error {
	name := e.fresh("semaphore")
	held, err := e.take(semaphore.New(e.client(e.long), name, slots), slots)
	if err != nil {
		return err
	}
	waiters := semaphore.New(e.client(e.long), name, slots)
	for _, p := range held {
		granted, failed := make(chan *semaphore.Permit, 1), make(chan error, 1)
		go func() {
			p, err := waiters.Acquire(e.within(e.patient))
			if err != nil {
				failed <- err
				return
			}
			granted <- p
		}()
		time.Sleep(100 * time.Millisecond) // for it to wait: no promise needs that
		if err := p.Unlock(e.Context()); err != nil {
			return err
		}
		select {
		case err := <-failed:
			return fmt.Errorf("slot %d was given back, and a waiter for any: %w", p.Slot(), err)
		case next := <-granted:
			if next.Slot() != p.Slot() {
				return fmt.Errorf("slot %d is held, and another has it", next.Slot())
			}
			if next.Token() <= p.Token() {
				return fmt.Errorf("slot %d has token %d after token %d", p.Slot(), next.Token(), p.Token())
			}
		}
	}
	return nil
}

func leakNoPermit(e *env) error {
	name := e.fresh("semaphore")
	var programs []func() error
	for range 2 * slots {
		s := semaphore.New(e.client(e.long), name, slots)
		programs = append(programs, func() error {
			for range 6 {
				p, err := s.Acquire(e.within(time.Duration(rand.N(60)) * time.Millisecond))
				if err != nil {
					continue
				}
				time.Sleep(time.Duration(rand.N(10)) * time.Millisecond)
				if err := p.Unlock(e.Context()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := all(programs...); err != nil {
		return err
	}
	return e.allFree(name)
}

func permitExpires(e *env) error {
	name := e.fresh("semaphore")
	p, err := persist(e, semaphore.New(e.client(e.TTL, locker.WithoutRenewal()), name, 1).Acquire)
	if err != nil {
		return err
	}
	next, err := persist(e, semaphore.New(e.client(e.long), name, 1).Acquire)
	switch {
	case err != nil:
		return fmt.Errorf("a permit of %v was not given back: %w", e.TTL, err)
	case p.Err() == nil:
		return errors.New("another has the only permit, and Err returned nil")
	case next.Token() <= p.Token():
		return fmt.Errorf("token %d came after token %d", next.Token(), p.Token())
	}
	return next.Unlock(e.Context())
}
