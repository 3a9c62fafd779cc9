package recipes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-locker/locker"
)

var operatorScenarios = []scenario{{
	name:    "operators: a forced release hands over",
	promise: "ForceRelease gives the lock to a waiter at once, under a larger token.",
	check:   forcedHandOver,
}, {
	name:    "operators: a forced release is a loss",
	promise: "The holder whose hold ForceRelease has ended hears ErrLost at its next renewal, Extend or Unlock.",
	check:   forcedLoss,
}, {
	name:    "operators: a forced release ends no other hold",
	promise: "ForceRelease ends the hold that it was shown, and returns ErrHeld or ErrNotHeld if that is not there.",
	check:   forcedStale,
}, {
	name:    "operators: a list has the names that are held",
	promise: "List has each name that is held and begins with the prefix, and no other.",
	check:   listed,
}}

// force ends the hold that is there, as an operator does: it looks, and ends what it has seen.
func (e *env) force(c *locker.Client, name string) error {
	shown, err := c.Inspect(e.within(e.patient), name)
	if err == nil {
		err = c.ForceRelease(e.within(e.patient), name, shown)
	}
	return asSkip(err)
}

// asSkip has a scenario skipped if the Driver cannot do what it is about.
func asSkip(err error) error {
	if errors.Is(err, locker.ErrUnsupported) {
		return fmt.Errorf("%w: %w", errSkip, err)
	}
	return err
}

func forcedHandOver(e *env) error {
	name := e.fresh("forced")
	former, err := persist(e, e.client(e.long).Mutex(name).Acquire)
	if err != nil {
		return err
	}
	type taken struct {
		*locker.Hold
		err error
	}
	waiting, next, operator := e.client(e.long), make(chan taken, 1), e.client(e.long)
	go func() {
		h, err := waiting.Mutex(name).Acquire(e.within(e.patient))
		next <- taken{h, err}
	}()
	if err := e.force(operator, name); err != nil {
		return err
	}
	got := <-next
	if got.err != nil {
		return fmt.Errorf("the hold was ended, and a waiter got %w", got.err)
	}
	if got.Token() <= former.Token() {
		return fmt.Errorf("the token of the hold that was ended is %d, and the next %d", former.Token(), got.Token())
	}
	if err := former.Unlock(e.Context()); !errors.Is(err, locker.ErrLost) {
		return fmt.Errorf("Unlock of the hold that was ended returned %v", err) //nolint:errorlint // may be nil
	}
	if err := operator.Mutex(name).TryLock(e.Context()); !errors.Is(err, locker.ErrHeld) {
		return fmt.Errorf("the next hold is there, and TryLock returned %v", err) //nolint:errorlint // may be nil
	}
	return got.Unlock(e.Context())
}

func forcedLoss(e *env) error {
	operator := e.client(e.long)
	for what, c := range map[string]struct {
		of   *locker.Client
		hear func(h *locker.Hold) error
	}{
		"Extend": {e.client(e.long), func(h *locker.Hold) error { return h.Extend(e.Context()) }},
		"Unlock": {e.client(e.long), func(h *locker.Hold) error { return h.Unlock(e.Context()) }},
		"a renewal": {e.client(e.TTL), func(h *locker.Hold) error {
			select {
			case <-h.Lost():
			case <-e.within(e.patient).Done():
			}
			return h.Err()
		}},
	} {
		name := e.fresh("lost")
		h, err := persist(e, c.of.Mutex(name).Acquire)
		if err != nil {
			return err
		}
		if err := e.force(operator, name); err != nil {
			return err
		}
		if err := c.hear(h); !errors.Is(err, locker.ErrLost) {
			return fmt.Errorf("the hold was ended, and %s returned %v", what, err) //nolint:errorlint // may be nil
		}
		if err := e.free(operator, name); err != nil {
			return err
		}
		_ = h.Unlock(e.Context())
	}
	return nil
}

func forcedStale(e *env) error {
	name := e.fresh("stale")
	c, operator := e.client(e.long), e.client(e.long)
	first, err := persist(e, c.Mutex(name).Acquire)
	if err != nil {
		return err
	}
	shown, err := operator.Inspect(e.within(e.patient), name)
	if err := errors.Join(asSkip(err), first.Unlock(e.Context())); err != nil {
		return err
	}
	if err := asSkip(operator.ForceRelease(e.within(e.patient), name, shown)); !errors.Is(err, locker.ErrNotHeld) {
		return fmt.Errorf("nobody holds the lock, and ForceRelease returned %w", err)
	}
	second, err := persist(e, c.Mutex(name).Acquire) // of the same process, on the same session if there is one
	if err != nil {
		return err
	}
	if err := operator.ForceRelease(e.within(e.patient), name, shown); !errors.Is(err, locker.ErrHeld) {
		return fmt.Errorf("another hold is there, and ForceRelease returned %v", err) //nolint:errorlint // may be nil
	}
	if err := errors.Join(second.Extend(e.Context()), second.Unlock(e.Context())); err != nil {
		return fmt.Errorf("a hold that nobody ended has ended: %w", err)
	}
	return nil
}

// many is above the number of locks that a page has, on most backends.
const many = 300

func listed(e *env) error {
	own := e.fresh("list")
	c, operator := e.client(e.long), e.client(e.long)
	if _, err := names(e.within(e.patient), operator, own); err != nil {
		return asSkip(err)
	}
	m := c.Mutex(own + "/released")
	if _, err := persist(e, func(ctx context.Context) (struct{}, error) { return struct{}{}, m.Lock(ctx) }); err != nil {
		return err
	}
	want := []string{own, own + "/}%{*?[a]\\:é\n", own + "/a/b", own + "%", own + "\x00"}
	for i := range many {
		want = append(want, fmt.Sprintf("%s/%d", own, i))
	}
	holds := make([]*locker.Hold, len(want))
	for i, name := range append(slices.Clone(want), own[1:], e.fresh("other")) {
		h, err := persist(e, c.Mutex(name).Acquire)
		if err != nil {
			return err
		}
		if i < len(holds) {
			holds[i] = h
		}
	}
	if err := m.Unlock(e.Context()); err != nil {
		return err
	}
	if err := e.lists(operator, own, want); err != nil {
		return err
	}
	if err := e.lists(operator, own+"/a", want[2:3]); err != nil {
		return err
	}
	for _, h := range holds {
		if err := h.Unlock(e.Context()); err != nil {
			return fmt.Errorf("a hold that was listed has ended: %w", err)
		}
	}
	return e.lists(operator, own, nil)
}

// lists returns an error unless those names are held that begin with prefix.
func (e *env) lists(c *locker.Client, prefix string, want []string) error {
	got, err := names(e.within(e.patient), c, prefix)
	if err != nil {
		return err
	}
	want = slices.Sorted(slices.Values(want))
	if !slices.Equal(got, want) {
		return fmt.Errorf("held are %q, and List had %q", abridged(want), abridged(got))
	}
	return nil
}

func abridged(names []string) []string { return names[:min(len(names), 10)] }

// names returns what List has, sorted, each once.
func names(ctx context.Context, c *locker.Client, prefix string) (all []string, err error) {
	for name, err := range c.List(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		if !strings.HasPrefix(name, prefix) {
			return nil, fmt.Errorf("%q does not begin with %q", name, prefix)
		}
		all = append(all, name)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}
