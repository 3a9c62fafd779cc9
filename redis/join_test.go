package redis_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestJoin_sendsNothingAndLeavesTheLockHeld(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	ctx := t.Context()
	admin := connect(t, s.Addr())
	c := clientOf(t, connect(t, s.Addr()), locker.WithTTL(time.Minute))
	require.NoError(t, c.Mutex("x").Do(ctx, func(ctx context.Context) error {
		resetStats(t, admin)
		for range 3 {
			require.NoError(t, c.Mutex("x").Join(ctx, func(_ context.Context, h *locker.Hold) error {
				token, err := admin.HGet(ctx, keyOf("x"), "token").Uint64()
				assert.Equal(t, token, h.Token())
				return err
			}))
		}
		assert.Zero(t, commandCalls(t, admin)["evalsha"])
		assert.True(t, isHeldAt(t, admin, keyOf("x")), "the end of Join releases nothing")
		return ctx.Err()
	}))
	assert.False(t, isHeldAt(t, admin, keyOf("x")))
}

func TestJoin_isToldWhenTheServerHasLostTheLock(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	c := clientOf(t, connect(t, s.Addr()), locker.WithTTL(2*time.Second))
	require.ErrorIs(t, c.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
		require.ErrorIs(t, c.Mutex("x").Join(ctx, func(ctx context.Context, _ *locker.Hold) error {
			s.Do("FLUSHALL")
			<-ctx.Done()
			require.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
			return nil
		}), locker.ErrLost)
		return nil
	}), locker.ErrLost)
}
