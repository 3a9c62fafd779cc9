package fencecheck_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/internal/test/fencecheck"
)

// resource is one in memory.
type resource struct {
	mu      sync.Mutex
	newest  uint64
	spoilt  bool
	history []uint64
}

// fence guards it by a check that is one step with the write if atomic is set.
func (r *resource) fence(atomic bool, check func(token, newest uint64) error) fencecheck.Fence {
	return fencecheck.Fence{
		Write: func(ctx context.Context, token uint64) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			if err := check(token, r.newest); err != nil {
				return err
			}
			if r.spoilt {
				return fence.ErrUnknown
			}
			if !atomic {
				r.mu.Unlock()
				time.Sleep(time.Millisecond)
				r.mu.Lock()
			}
			r.newest = token
			r.history = append(r.history, token)
			return nil
		},
		History: func(context.Context) ([]uint64, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			return slices.Clone(r.history), nil
		},
		Spoil: func(context.Context, string) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.newest, r.spoilt = 0, true
			return nil
		},
	}
}

func rule(token, newest uint64) error { return fence.Check("x", token, newest) }

// Each is caught by the scenario that is meant for it.
func TestScenarios_catch(t *testing.T) {
	const less, unknown = "less is refused, equal and larger are not", "what is no token lets nobody through"
	type broken struct {
		what, scenario string
		fence          fencecheck.Fence
	}
	all := []broken{
		{"check, then write", "many writers at once", new(resource).fence(false, rule)},
		{"no word of the newest", less, new(resource).fence(true, func(token, newest uint64) error {
			if token < newest {
				return &fence.StaleError{Resource: "x", Token: token}
			}
			return nil
		})},
		{"takes for none what is no token", unknown, takesUnknownFor(nil)},
		{"takes for stale what is not known", unknown, takesUnknownFor(&fence.StaleError{})},
		{"ignores its context", "a context that has ended", heedless(new(resource).fence(true, rule))},
	}
	for _, c := range []struct {
		what, scenario string
		refused        func(token, newest uint64) bool
	}{
		{"no check", less, func(uint64, uint64) bool { return false }},
		{"equal refused", less, func(token, newest uint64) bool { return token <= newest }},
		{"0 let through", "0 is refused", func(token, newest uint64) bool { return token != 0 && token < newest }},
		{"by text", "not by its text", func(token, newest uint64) bool { return token == 0 || fmt.Sprint(token) < fmt.Sprint(newest) }},
		{"by length", "the same length", func(token, newest uint64) bool {
			return token == 0 || len(fmt.Sprint(token)) < len(fmt.Sprint(newest))
		}},
		{"doubles", "53 bits and more", func(token, newest uint64) bool { return token == 0 || float64(token) < float64(newest) }},
		{"int64", "64 bits", func(token, newest uint64) bool { return token == 0 || int64(token) < int64(newest) }},
		{"19 digits", "the largest", func(token, newest uint64) bool { return token == 0 || token/10 < newest/10 }},
	} {
		all = append(all, broken{c.what, c.scenario, new(resource).fence(true, func(token, newest uint64) error {
			if c.refused(token, newest) {
				return &fence.StaleError{Resource: "x", Token: token, Newest: newest}
			}
			return nil
		})})
	}
	for _, b := range all {
		t.Run(b.what, func(t *testing.T) {
			scenarios := fencecheck.Scenarios()
			i := slices.IndexFunc(scenarios, func(s fencecheck.Scenario) bool { return s.Name == b.scenario })
			require.GreaterOrEqual(t, i, 0, "no scenario %q", b.scenario)
			require.Error(t, scenarios[i].Check(t.Context(), b.fence))
		})
	}
}

// takesUnknownFor is a fence that returns outcome where what it has seen is not known.
func takesUnknownFor(outcome error) fencecheck.Fence {
	f := new(resource).fence(true, rule)
	write := f.Write
	f.Write = func(ctx context.Context, token uint64) error {
		if err := write(ctx, token); !errors.Is(err, fence.ErrUnknown) {
			return err
		}
		return outcome
	}
	return f
}

func heedless(f fencecheck.Fence) fencecheck.Fence {
	write := f.Write
	f.Write = func(ctx context.Context, token uint64) error { return write(context.WithoutCancel(ctx), token) }
	return f
}

func TestDisturbed(t *testing.T) {
	disturbed := 0
	disturb := func() { disturbed++ }
	require.NoError(t, fencecheck.Disturbed(t.Context(), new(resource).fence(true, rule), 3, disturb))
	require.Equal(t, 3, disturbed)
	require.Error(t, fencecheck.Disturbed(t.Context(), new(resource).fence(false, rule), 3, disturb), "check, then write")
	loses := new(resource).fence(true, rule)
	loses.History = func(context.Context) ([]uint64, error) { return []uint64{1}, nil }
	require.Error(t, fencecheck.Disturbed(t.Context(), loses, 3, disturb), "acknowledged, and not made")
}
