package zookeeperfence_test

import (
	"context"
	"errors"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/zookeeperfence"
	"github.com/go-locker/locker/internal/test/fencecheck"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	_ "github.com/go-locker/locker/zookeeper" // registers zookeeper://
)

// overtaken has the answer to the first's reading held up while the second writes.
func overtaken(t *testing.T, p *testserver.Proxy, first, second func() error) error {
	t.Helper()
	p.HoldReplies(true)
	done := testwait.Go(first)
	const smallest = 40 // more than the answer to a ping has
	eventually(t, "the first has read", func() bool {
		_, replies := p.Held()
		return replies > smallest
	})
	require.NoError(t, second())
	p.ReleaseReplies()
	return await(t, done)
}

func TestWrite_thatPausedAfterItsReading(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	p := testserver.NewProxy(t, s.Addr())
	direct, slow := connect(t, s.Addr()), connect(t, p.Addr())
	ctx := t.Context()
	r := newResource(t, direct)
	writes := func(conn *zk.Conn, token uint64) func() error {
		return func() error { return r.write(ctx, conn, token) }
	}
	require.NoError(t, r.write(ctx, slow, 1))
	require.ErrorIs(t, overtaken(t, p, writes(slow, 2), writes(direct, 4)), fence.ErrStale, "by a newer one")
	require.ErrorIs(t, overtaken(t, p, writes(slow, 3), writes(direct, 4)), fence.ErrStale, "before it reads")
	require.NoError(t, overtaken(t, p, writes(slow, 6), writes(direct, 5)), "by an older one")
	require.NoError(t, overtaken(t, p, writes(slow, 6), writes(direct, 6)), "by its own")
	require.ErrorIs(t, overtaken(t, p, writes(slow, 6), writes(direct, 7)), fence.ErrStale, "by a newer one, when it had read its own")
	seen, err := r.history(direct)
	require.NoError(t, err)
	assert.Equal(t, []uint64{1, 4, 4, 5, 6, 6, 6, 7}, seen)
}

// What the package says of making the node anew: a version is all that ZooKeeper compares, and it is the same again.
func TestWrite_thatHasReadANodeWhichWasMadeAnewIsNotRefused(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	p := testserver.NewProxy(t, s.Addr())
	direct, slow := connect(t, s.Addr()), connect(t, p.Addr())
	ctx := t.Context()
	r := newResource(t, direct)
	require.NoError(t, r.write(ctx, slow, 1))
	require.NoError(t, overtaken(t, p, func() error { return r.write(ctx, slow, 2) }, func() error {
		return errors.Join(
			direct.Delete(r.token(), -1),
			zookeeperfence.Create(ctx, direct, r.token(), world),
			r.write(ctx, direct, 3),
		)
	}))
	assert.Equal(t, "2", r.kept(t, direct), "after 3")
}

// Connections break, and some outcomes are not known: no write is made after a newer one.
func TestBrokenConnections_noStaleWriteGetsIn(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	p := testserver.NewProxy(t, s.Addr())
	direct, conns := connect(t, s.Addr()), []*zk.Conn{connect(t, p.Addr()), connect(t, p.Addr())}
	r, times := newResource(t, direct), 2
	if testwait.Thorough() {
		times = 5
	}
	require.NoError(t, fencecheck.Disturbed(t.Context(), fencecheck.Fence{
		Write:   func(ctx context.Context, token uint64) error { return r.write(ctx, conns[token%2], token) },
		History: func(context.Context) ([]uint64, error) { return r.history(direct) },
	}, times, p.ResetConns))
}

func TestWrite_endsWithItsContext(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	p := testserver.NewProxy(t, s.Addr())
	direct, conn := connect(t, s.Addr()), connect(t, p.Addr())
	r := newResource(t, direct)
	p.HoldRequests(true)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := testwait.Go(func() error { return r.write(ctx, conn, 2) })
	cancel(locker.ErrLost)
	require.ErrorIs(t, await(t, done), locker.ErrLost)
	p.ReleaseRequests()
	require.NoError(t, r.write(t.Context(), conn, 3))
	seen, err := r.history(direct)
	require.NoError(t, err)
	assert.Equal(t, []uint64{3}, seen, "who had given up while it read does not write later")
}
