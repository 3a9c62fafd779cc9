package etcdfence_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/internal/test/fencecheck"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// The leader is killed, and comes back: what was agreed on outlives it.
func TestRestarts_noStaleWriteGetsIn(t *testing.T) {
	t.Parallel()
	x := fresh()
	g := testserver.EtcdCluster(t, 3)
	cli := connect(t, g.Addrs()...)
	require.NoError(t, fencecheck.Disturbed(t.Context(), fencecheck.Fence{
		Write: func(ctx context.Context, token uint64) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			return write(ctx, cli, x, token)
		},
		History: func(ctx context.Context) ([]uint64, error) { return history(ctx, cli, x) },
	}, 2, func() { g.Leader().Restart() }))
}

func TestWrite_thatArrivesLateIsRefused(t *testing.T) {
	t.Parallel()
	x := fresh()
	s := testserver.SharedEtcd(t)
	p := testserver.NewProxy(t, s.Addr())
	direct, slow := connect(t, s.Addr()), connect(t, p.Addr())
	ctx := t.Context()
	require.NoError(t, write(ctx, slow, x, 1))
	p.HoldRequests(true)
	done := testwait.Go(func() error { return write(ctx, slow, x, 2) })
	const smallest = 60 // more than an acknowledgement, or a ping, has
	testwait.Patience(time.Minute).Until(t, "the first request is on its way", func() bool {
		requests, _ := p.Held()
		return requests > smallest
	})
	require.NoError(t, write(ctx, direct, x, 3))
	p.ReleaseRequests()
	require.ErrorIs(t, testwait.Patience(time.Minute).Result(t, done), fence.ErrStale)
	seen, err := history(ctx, direct, x)
	require.NoError(t, err)
	assert.Equal(t, []uint64{1, 3}, seen)
}
