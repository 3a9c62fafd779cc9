package etcdfence_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/internal/test/fencecheck"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// late has the request of the first reach the server when the second has been answered.
func late(t *testing.T, p *testserver.Proxy, first, second func() error) error {
	t.Helper()
	p.HoldRequests(true)
	done := testwait.Go(first)
	const smallest = 60 // more than an acknowledgement, or a ping, has
	eventually(t, "the first request is on its way", func() bool {
		requests, _ := p.Held()
		return requests > smallest
	})
	require.NoError(t, second())
	p.ReleaseRequests()
	return await(t, done)
}

func TestWrite_thatArrivesLateIsRefused(t *testing.T) {
	t.Parallel()
	x := fresh()
	s := testserver.SharedEtcd(t)
	p := testserver.NewProxy(t, s.Addr())
	direct, slow := connect(t, s.Addr()), connect(t, p.Addr())
	ctx := t.Context()
	require.NoError(t, write(ctx, slow, x, 1))
	err := late(t, p, func() error { return write(ctx, slow, x, 2) }, func() error { return write(ctx, direct, x, 3) })
	require.ErrorIs(t, err, fence.ErrStale)
	seen, err := history(ctx, direct, x)
	require.NoError(t, err)
	assert.Equal(t, []uint64{1, 3}, seen)
}

// What the fence is for: who looks first and writes then is overtaken between the two, and the history shows it.
func TestCheckThenWrite_isOvertaken(t *testing.T) {
	t.Parallel()
	x := fresh()
	s := testserver.SharedEtcd(t)
	p := testserver.NewProxy(t, s.Addr())
	direct, slow := connect(t, s.Addr()), connect(t, p.Addr())
	ctx := t.Context()
	require.NoError(t, write(ctx, slow, x, 1))
	newest, err := strconv.ParseUint(value(t, slow, x+"/token"), 10, 64)
	require.NoError(t, err)
	require.NoError(t, fence.Check(x, 2, newest))
	err = late(t, p, func() error {
		_, err := slow.Put(ctx, x+"/writes/naive", "2")
		return err
	}, func() error { return write(ctx, direct, x, 3) })
	require.NoError(t, err)
	seen, err := history(ctx, direct, x)
	require.NoError(t, err)
	assert.Error(t, fencecheck.Rising(seen), "%d", seen)
}

// Connections break, and some outcomes are not known: no write is made after a newer one.
func TestBrokenConnections_noStaleWriteGetsIn(t *testing.T) {
	t.Parallel()
	x := fresh()
	s := testserver.SharedEtcd(t)
	p := testserver.NewProxy(t, s.Addr())
	direct, cli := connect(t, s.Addr()), connect(t, p.Addr())
	require.NoError(t, fencecheck.Disturbed(t.Context(), fencecheck.Fence{
		Write:   func(ctx context.Context, token uint64) error { return write(ctx, cli, x, token) },
		History: func(ctx context.Context) ([]uint64, error) { return history(ctx, direct, x) },
	}, 10, p.ResetConns))
}

// The leader is killed, and comes back, time and again.
func TestRestarts_noStaleWriteGetsIn(t *testing.T) {
	testwait.OnlyNightly(t, "that what was agreed on outlives the leader shows TestToken_survivesTheLossOfTheLeader")
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
	}, 3, func() { g.Leader().Restart() }))
}
