package fence_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/internal/test/fencecheck"
	"github.com/go-locker/locker/internal/test/testwait"
)

const resource = "orders/42"

func nothing(context.Context) error { return nil }

// never is the write of a token that has to be refused.
func never(t *testing.T) func(context.Context) error {
	return func(context.Context) error {
		t.Error("what was refused is written")
		return nil
	}
}

func TestMemory_keepsTheRule(t *testing.T) {
	var guard fence.Memory
	fencecheck.Run(t, func(t testing.TB) fencecheck.Fence { return fencecheck.Of(&guard, t.Name(), nil) })
}

func TestMemory_handsOnTheContextAndTheErrorOfTheWrite(t *testing.T) {
	var guard fence.Memory
	type key struct{}
	failed := errors.New("disk full")
	err := guard.Write(context.WithValue(t.Context(), key{}, "kept"), resource, 1, func(ctx context.Context) error {
		assert.Equal(t, "kept", ctx.Value(key{}))
		return failed
	})
	assert.Same(t, failed, err)
}

// Part of a write that failed may have got through, and what it wrote must not be overwritten by an earlier holder.
func TestMemory_hasSeenTheTokenOfAWriteThatFailed(t *testing.T) {
	for name, write := range map[string]func(context.Context) error{
		"error":  func(context.Context) error { return errors.New("half of it is written") },
		"panic":  func(context.Context) error { panic("half of it is written") },
		"Goexit": func(context.Context) error { runtime.Goexit(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			var guard fence.Memory
			require.NoError(t, guard.Write(t.Context(), resource, 33, nothing))
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				defer func() { _ = recover() }()
				_ = guard.Write(t.Context(), resource, 34, write)
			}()
			<-ended
			require.ErrorIs(t, guard.Write(t.Context(), resource, 33, never(t)), fence.ErrStale)
			ctx := testwait.Context(t, patience)
			require.NoError(t, guard.Write(ctx, resource, 34, nothing), "the next has its turn")
		})
	}
}

func TestMemory_ctxEndsTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var guard fence.Memory
		goOn := make(chan struct{})
		first := testwait.Go(func() error {
			return guard.Write(t.Context(), resource, 33, func(context.Context) error {
				<-goOn
				return nil
			})
		})
		synctest.Wait()
		ctx, cancel := context.WithCancelCause(t.Context())
		waiting := testwait.Go(func() error { return guard.Write(ctx, resource, 34, never(t)) })
		synctest.Wait()
		lost := errors.New("the lock was lost")
		cancel(lost)
		require.ErrorIs(t, <-waiting, lost)
		require.NoError(t, guard.Write(t.Context(), "another resource", 1, nothing), "does not wait")

		close(goOn)
		require.NoError(t, <-first)
		for range 100 { // a select between a turn that is free and a ctx that has ended would be a coin
			require.ErrorIs(t, guard.Write(ctx, resource, 34, never(t)), lost, "nobody is in the way, but ctx has ended")
		}
		require.NoError(t, guard.Write(t.Context(), resource, 33, nothing), "a token that was never let through is not seen")
	})
}
