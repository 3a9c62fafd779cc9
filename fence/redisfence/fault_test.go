package redisfence_test

import (
	"context"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/redisfence"
	"github.com/go-locker/locker/internal/test/fencecheck"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// late has the request of the first reach the server when the second has been answered.
func late(t *testing.T, p *testserver.Proxy, first, second func() error) error {
	t.Helper()
	p.HoldRequests(true)
	done := testwait.Go(first)
	eventually(t, "the first request is on its way", func() bool { requests, _ := p.Held(); return requests > 0 })
	require.NoError(t, second())
	p.ReleaseRequests()
	return await(t, done)
}

// A token orders holders, and not the requests of one. Who looks first and writes then, without the
// fence, is overtaken between the two, and the history shows it.
func TestRun_thatArrivesLateIsRefused(t *testing.T) {
	t.Parallel()
	p, slow, direct := behindProxy(t)
	ctx := t.Context()
	fenced := func(rdb *goredis.Client, token uint64) func() error {
		return func() error { return write(ctx, rdb, "x", token) }
	}
	require.ErrorIs(t, late(t, p, fenced(slow, 2), fenced(direct, 3)), fence.ErrStale)
	require.NoError(t, late(t, p, fenced(slow, 3), fenced(direct, 3)), "of the same holder")
	assert.Equal(t, []uint64{3, 3, 3}, seen(t, direct, "x"))

	newest, err := slow.Get(ctx, redisfence.TokenKey("x")).Uint64()
	require.NoError(t, err)
	require.NoError(t, fence.Check("x", 4, newest))
	require.NoError(t, late(t, p, func() error { return slow.RPush(ctx, "x", 4).Err() }, fenced(direct, 5)))
	assert.Error(t, fencecheck.Rising(seen(t, direct, "x")), "%d", seen(t, direct, "x"))
}

// Connections break, and requests are sent again: some writes are made twice, and none after a newer one.
func TestBrokenConnections_noStaleWriteGetsIn(t *testing.T) {
	t.Parallel()
	p, slow, direct := behindProxy(t)
	require.NoError(t, fencecheck.Disturbed(t.Context(), fencecheck.Fence{
		Write:   func(ctx context.Context, token uint64) error { return write(ctx, slow, "x", token) },
		History: func(ctx context.Context) ([]uint64, error) { return history(ctx, direct, "x") },
	}, 30, p.ResetConns))
}
