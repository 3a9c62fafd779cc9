package redisfence_test

import (
	"context"
	"testing"

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

func TestRun_thatArrivesLateIsRefused(t *testing.T) {
	t.Parallel()
	p, slow, direct := behindProxy(t)
	ctx := t.Context()
	err := late(t, p, func() error { return write(ctx, slow, "x", 2) }, func() error { return write(ctx, direct, "x", 3) })
	require.ErrorIs(t, err, fence.ErrStale)
	assert.Equal(t, []uint64{3}, seen(t, direct, "x"))
}

// A token orders holders, and not the requests of one: the documentation says so, and this is what it means.
func TestRun_thatArrivesLate_afterAnotherOfTheSameHolder(t *testing.T) {
	t.Parallel()
	p, slow, direct := behindProxy(t)
	ctx := t.Context()
	err := late(t, p, func() error { return write(ctx, slow, "x", 2) }, func() error { return write(ctx, direct, "x", 2) })
	require.NoError(t, err)
	assert.Equal(t, []uint64{2, 2}, seen(t, direct, "x"))
}

// What the fence is for: who looks first and writes then is overtaken between the two, and the history shows it.
func TestCheckThenWrite_isOvertaken(t *testing.T) {
	t.Parallel()
	p, slow, direct := behindProxy(t)
	ctx := t.Context()
	require.NoError(t, write(ctx, slow, "x", 1))
	newest, err := slow.Get(ctx, redisfence.TokenKey("x")).Uint64()
	require.NoError(t, err)
	require.NoError(t, fence.Check("x", 2, newest))
	err = late(t, p, func() error { return slow.RPush(ctx, "x", 2).Err() }, func() error { return write(ctx, direct, "x", 3) })
	require.NoError(t, err)
	assert.Error(t, fencecheck.Rising(seen(t, direct, "x")), "%d", seen(t, direct, "x"))
}

// go-redis sends the request again, and meanwhile another has come.
func TestLostReply_isRefusedThoughItWasMade(t *testing.T) {
	t.Parallel()
	p, slow, direct := behindProxy(t)
	ctx := t.Context()
	p.HoldReplies(true)
	done := testwait.Go(func() error { return write(ctx, slow, "x", 5) })
	eventually(t, "the server has written", func() bool { _, replies := p.Held(); return replies > 0 })
	p.HoldReplies(false)
	require.NoError(t, write(ctx, direct, "x", 9))
	p.ResetConns()
	require.ErrorIs(t, await(t, done), fence.ErrStale)
	assert.Equal(t, []uint64{5, 9}, seen(t, direct, "x"))
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
