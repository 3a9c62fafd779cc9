// Package fencecheck puts fences through what they promise: the rule, at the numbers where it is easily got wrong, and
// many writers at once. The packages below fence do so on real servers.
package fencecheck

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-locker/locker/fence"
)

// Fence is a resource that nobody has written to yet.
type Fence struct {
	// Write makes one write that token guards, and that History tells.
	Write func(ctx context.Context, token uint64) error
	// History lists the tokens of the writes that were made, in the order in which the resource has made them.
	History func(ctx context.Context) ([]uint64, error)
	// Spoil puts text where the newest token is kept; nil where nobody can.
	Spoil func(ctx context.Context, text string) error
	// NoTokens are texts that are no token there, besides "no token".
	NoTokens []string
}

// Of is the Fence of a guard, of a resource that fails if two write at once.
func Of(guard fence.Guard, resource string, spoil func(ctx context.Context, text string) error) Fence {
	var mu sync.Mutex
	var history []uint64
	return Fence{
		Write: func(ctx context.Context, token uint64) error {
			return guard.Write(ctx, resource, token, func(context.Context) error {
				if !mu.TryLock() {
					return errors.New("another write is under way")
				}
				defer mu.Unlock()
				history = append(history, token)
				return nil
			})
		},
		History: func(context.Context) ([]uint64, error) {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(history), nil
		},
		Spoil: spoil,
	}
}

// Run checks all scenarios, each with a Fence of its own.
func Run(t *testing.T, newFence func(t testing.TB) Fence) {
	t.Helper()
	for _, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			if err := s.Check(t.Context(), newFence(t)); err != nil {
				t.Error(err)
			}
		})
	}
}

// Scenario is one promise.
type Scenario struct {
	Name  string
	Check func(ctx context.Context, f Fence) error
}

// Scenarios returns all.
func Scenarios() []Scenario {
	const float, signed = 1 << 53, 1 << 63 // what a double, and an int64, cannot tell from the next, or cannot have
	var all []Scenario
	for _, r := range []struct {
		name  string
		steps []step
	}{
		{"less is refused, equal and larger are not", []step{
			{2, done}, {1, stale}, {2, done}, {3, done}, {2, stale}, {1, stale}, {3, done},
		}},
		{"0 is refused", []step{{0, stale}, {1, done}, {0, stale}, {1, done}}},
		{"not by its text", []step{{9, done}, {10, done}, {9, stale}, {100, done}, {20, stale}}},
		{"the same length", []step{{41, done}, {42, done}, {41, stale}, {50, done}, {49, stale}}},
		{"53 bits and more", []step{
			{float, done}, {float + 1, done}, {float, stale}, {float - 1, stale}, {float + 1, done},
		}},
		{"64 bits", []step{{signed - 1, done}, {signed, done}, {signed - 1, stale}, {signed + 1, done}, {signed, stale}}},
		{"the largest", []step{
			{math.MaxUint64 - 1, done}, {math.MaxUint64, done}, {math.MaxUint64 - 1, stale}, {1, stale}, {math.MaxUint64, done},
		}},
	} {
		all = append(all, Scenario{r.name, func(ctx context.Context, f Fence) error { return follow(ctx, f, r.steps) }})
	}
	return append(all,
		Scenario{"what is no token lets nobody through", spoilt},
		Scenario{"a context that has ended", endedContext},
		Scenario{"many writers at once", storm},
	)
}

// step is a write, and what becomes of it.
type step struct {
	token uint64
	outcome
}

type outcome bool

const (
	done  outcome = true
	stale outcome = false
)

func follow(ctx context.Context, f Fence, steps []step) error {
	var want []uint64
	var newest uint64
	for i, s := range steps {
		err := f.Write(ctx, s.token)
		if s.outcome == done {
			if err != nil {
				return fmt.Errorf("step %d, %d after %d: %w", i, s.token, newest, err)
			}
			want, newest = append(want, s.token), max(newest, s.token)
			continue
		}
		if err := refusal(err, s.token, newest); err != nil {
			return fmt.Errorf("step %d, %d after %d: %w", i, s.token, newest, err)
		}
	}
	return told(ctx, f, want)
}

// refusal returns an error if err is not what it should be.
func refusal(err error, token, newest uint64) error {
	var s *fence.StaleError
	switch {
	case !errors.Is(err, fence.ErrStale) || !errors.As(err, &s):
		return fmt.Errorf("not refused as stale: %w", err)
	case s.Token != token, token != 0 && s.Newest != newest, s.Resource == "":
		return fmt.Errorf("the refusal says %+v", *s)
	}
	return nil
}

func told(ctx context.Context, f Fence, want []uint64) error {
	got, err := f.History(ctx)
	if err == nil && !slices.Equal(got, want) {
		err = fmt.Errorf("writes of %d were made, not of %d", got, want)
	}
	return err
}

func spoilt(ctx context.Context, f Fence) error {
	if f.Spoil == nil {
		return nil
	}
	if err := f.Write(ctx, 7); err != nil {
		return err
	}
	for _, text := range append([]string{"no token"}, f.NoTokens...) {
		if err := f.Spoil(ctx, text); err != nil {
			return err
		}
		for _, token := range []uint64{6, 7, 8, math.MaxUint64} {
			err := f.Write(ctx, token)
			if !errors.Is(err, fence.ErrUnknown) || errors.Is(err, fence.ErrStale) || len(err.Error()) > 500 {
				return fmt.Errorf("a write of %d when the newest is %q: %w", token, text, err)
			}
		}
	}
	if err := f.Write(ctx, 0); !errors.Is(err, fence.ErrStale) {
		return fmt.Errorf("a write of nobody's token when the newest is not known: %w", err)
	}
	return told(ctx, f, []uint64{7})
}

func endedContext(ctx context.Context, f Fence) error {
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := f.Write(ended, 7); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("a write whose context has ended: %w", err)
	}
	if err := f.Write(ctx, 3); err != nil {
		return fmt.Errorf("a lower token after a write that was not sent: %w", err)
	}
	return told(ctx, f, []uint64{3})
}

// storm has many writers make one write under each of their tokens, which rise, and pause before it.
func storm(ctx context.Context, f Fence) error {
	const count, each = 8, 25
	w := writers{fence: f}
	for range count {
		w.all.Go(func() {
			for range each {
				w.write(ctx, func() { time.Sleep(rand.N(2 * time.Millisecond)) })
			}
		})
	}
	w.all.Wait()
	history, err := w.check(ctx)
	switch {
	case w.failed != nil:
		return w.failed
	case err != nil:
		return err
	case len(history) != len(w.made):
		return fmt.Errorf("writes of %d were made, and %d were told so", history, w.made)
	case !slices.Contains(w.made, count*each):
		return errors.New("the largest token was refused")
	case w.refused == 0:
		return errors.New("no token was refused: the writers were not at once")
	}
	return nil
}

// Rising returns an error if history has a write after one with a larger token.
func Rising(history []uint64) error {
	for i := 1; i < len(history); i++ {
		if history[i] < history[i-1] {
			return fmt.Errorf("a write of %d was made after one of %d: %d", history[i], history[i-1], history)
		}
	}
	return nil
}
