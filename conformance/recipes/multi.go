package recipes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/multi"
)

var multiScenarios = []scenario{{
	name:    "multi: opposite orders end",
	promise: "Programs that take the same names in different orders never wait for each other.",
	check:   oppositeOrders,
}, {
	name:    "multi: cancelled half-way leaves nothing",
	promise: "On an error nothing is held.",
	check:   halfWay,
}, {
	name:    "multi: all or none",
	promise: "TryAcquire returns ErrHeld if another owner holds one of them, and then holds none.",
	check:   allOrNone,
}, {
	name:    "multi: one loss ends all",
	promise: "If one lock is lost, the Hold is lost, no later than the earliest deadline.",
	check:   oneLoss,
}, {
	name:     "multi: a silent server ends all",
	promise:  "If one lock is lost, the Hold is lost, no later than the earliest deadline, even when the backend is unreachable.",
	disturbs: true,
	check:    silentServer,
}}

// turns counts who is inside, and keeps the last token of each name.
type turns struct {
	mu     sync.Mutex
	inside map[string]bool
	last   map[string]uint64
}

func newTurns() *turns { return &turns{inside: map[string]bool{}, last: map[string]uint64{}} }

// enter fails if another is inside, or a token is not larger than that of the one before.
func (t *turns) enter(name string, token uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inside[name] {
		return fmt.Errorf("two hold %q at once", name)
	}
	if token <= t.last[name] {
		return fmt.Errorf("the token of %q is %d, and was %d before", name, token, t.last[name])
	}
	t.inside[name], t.last[name] = true, token
	return nil
}

func (t *turns) leave(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.inside[name] = false
}

// take is inside each of names for a moment.
func (t *turns) take(h *multi.Hold, names []string) error {
	if len(names) == 0 {
		time.Sleep(time.Millisecond)
		return nil
	}
	if err := t.enter(names[0], h.Token(names[0])); err != nil {
		return err
	}
	defer t.leave(names[0])
	return t.take(h, names[1:])
}

// all runs each of fs in a goroutine, and returns their errors, joined.
func all(fs ...func() error) error {
	errs := make([]error, len(fs))
	var wg sync.WaitGroup
	for i, f := range fs {
		wg.Go(func() { errs[i] = f() })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func oppositeOrders(e *env) error {
	a, b, c := e.fresh("a"), e.fresh("b"), e.fresh("c")
	turns := newTurns()
	ctx := e.within(e.patient)
	var programs []func() error
	for _, names := range [][]string{{a, b}, {b, a}, {b, c}, {c, a}} {
		m := multi.New(e.client(e.long), names)
		programs = append(programs, func() error {
			for range 8 {
				if err := m.Do(ctx, func(_ context.Context, h *multi.Hold) error { return turns.take(h, names) }); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return all(programs...)
}

// whileOneIsHeld has fail try to take two names, of which another holds b, and returns an error unless a is free then. It returns the
// two, which nobody holds.
func (e *env) whileOneIsHeld(fail func(m *multi.Mutex, b string) error) (names []string, err error) {
	names = []string{e.fresh("a"), e.fresh("b")}
	other := e.client(e.long)
	held, err := persist(e, other.Mutex(names[1]).Acquire)
	if err != nil {
		return nil, err
	}
	if err := fail(multi.New(e.client(e.long), names), names[1]); err != nil {
		return nil, err
	}
	if err := e.free(other, names[0]); err != nil {
		return nil, err
	}
	return names, held.Unlock(e.Context())
}

func halfWay(e *env) error {
	names, err := e.whileOneIsHeld(func(m *multi.Mutex, b string) error {
		for range 3 {
			if h, err := m.Acquire(e.within(300 * time.Millisecond)); err == nil {
				return errors.Join(fmt.Errorf("both are held, and %q is another's", b), h.Unlock(e.Context()))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return e.free(e.client(e.long), names...)
}

func allOrNone(e *env) error {
	names, err := e.whileOneIsHeld(func(m *multi.Mutex, b string) error {
		if _, err := m.TryAcquire(e.within(e.patient)); !errors.Is(err, locker.ErrHeld) {
			return fmt.Errorf("%q is another's, and TryAcquire returned %v", b, err) //nolint:errorlint // may be nil
		}
		return nil
	})
	if err != nil {
		return err
	}
	h, err := persist(e, multi.New(e.client(e.long), names).Acquire)
	if err != nil {
		return err
	}
	other := e.client(e.long)
	for _, name := range names {
		if err := other.Mutex(name).TryLock(e.Context()); !errors.Is(err, locker.ErrHeld) {
			return fmt.Errorf("%q is held, and TryLock returned %v", name, err) //nolint:errorlint // may be nil
		}
	}
	return h.Unlock(e.Context())
}

func oneLoss(e *env) error {
	a, b := e.fresh("a"), e.fresh("b")
	h, err := persist(e, multi.New(e.client(e.TTL, locker.WithoutRenewal()), []string{a, b}).Acquire)
	if err != nil {
		return err
	}
	return e.lost(h, a, b)
}

func silentServer(e *env) error {
	a, b := e.fresh("a"), e.fresh("b")
	c := e.client(e.TTL)
	h, err := persist(e, multi.New(c, []string{a, b}).Acquire)
	if err != nil {
		return err
	}
	resume := e.StopServers(e.TB)
	defer resume()
	time.Sleep(e.TTL + time.Millisecond) // what was under way when they stopped lasts no longer
	if h.Err() == nil {
		return errors.New("the servers have been silent for a TTL, and Err returned nil")
	}
	resume()
	if err := e.answers(c); err != nil {
		return err
	}
	return e.lost(h, a, b)
}

// lost returns an error unless h ends by its deadline, its Unlock returns ErrLost, and all its names are free then.
func (e *env) lost(h *multi.Hold, names ...string) error {
	ctx, cancel := h.Context(e.within(e.patient), 0)
	defer cancel()
	<-ctx.Done()
	if cause := context.Cause(ctx); !errors.Is(cause, locker.ErrLost) {
		return fmt.Errorf("the context ended with %w", cause)
	}
	if err := h.Err(); !errors.Is(err, locker.ErrLost) {
		return fmt.Errorf("the context has ended, and Err returned %v", err) //nolint:errorlint // may be nil
	}
	if err := h.Unlock(e.Context()); !errors.Is(err, locker.ErrLost) {
		return fmt.Errorf("the hold is lost, and Unlock returned %v", err) //nolint:errorlint // may be nil
	}
	return e.free(e.client(e.long), names...)
}
