package goose_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	lockergoose "github.com/go-locker/locker/integrations/goose"
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
