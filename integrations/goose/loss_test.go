package goose_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	lockergoose "github.com/go-locker/locker/integrations/goose"
	"github.com/go-locker/locker/internal/test/testserver"
)

// A migration under way ends with the loss, and leaves nothing.
func TestLoss_endsTheContextOfTheMigration(t *testing.T) {
	each(t, func(t *testing.T, lock string, d target) {
		holder := newInstance(t, lock, d, locker.WithTTL(5*time.Second), locker.WithoutRenewal())
		began := false
		p := holder.fenced(t, second(nil, func(ctx context.Context) error {
			began = true
			<-ctx.Done() // as a long statement would
			return context.Cause(ctx)
		}))
		ctx, cancel := lockergoose.Context(t.Context())
		defer cancel()
		_, err := p.Up(ctx)
		require.ErrorIs(t, err, locker.ErrLost)
		require.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
		require.True(t, began)
		holder.assertState(t, 0, 0)

		applied, err := newInstance(t, lock, d).fenced(t, second(nil, nil)).Up(t.Context())
		require.NoError(t, err)
		assert.Len(t, applied, 1)
	})
}

// Its server has lost the lock, and its holder has not heard of it: the database refuses the holder.
func TestLoss_thatTheHolderDoesNotKnowOf(t *testing.T) {
	t.Parallel()
	for name, d := range databases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, d := testserver.Redis(t), d(t)
			url := s.URL() + "?ttl=5m"
			holder, next := newInstance(t, url, d), newInstance(t, url, d)
			p := holder.fenced(t, second(func(ctx context.Context) error {
				s.Do("FLUSHALL")
				_, err := next.fenced(t, second(nil, nil)).Up(ctx)
				return err
			}, nil))
			ctx, cancel := lockergoose.Context(t.Context())
			defer cancel()
			_, err := p.Up(ctx)
			require.ErrorIs(t, err, fence.ErrStale)
			require.ErrorContains(t, err, "apply version 2")
			next.assertState(t, 1, 1)
		})
	}
}
