package zookeeperfence_test

import (
	"context"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/zookeeperfence"
	"github.com/go-locker/locker/internal/test/fencecheck"
	"github.com/go-locker/locker/internal/test/testserver"
	_ "github.com/go-locker/locker/zookeeper" // registers zookeeper://
)

func TestWrite_keepsTheRule(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	conn := connect(t, s.Addr())
	fencecheck.Run(t, func(t testing.TB) fencecheck.Fence {
		r := newResource(t, conn)
		return fencecheck.Fence{
			Write:   func(ctx context.Context, token uint64) error { return r.write(ctx, conn, token) },
			History: func(context.Context) ([]uint64, error) { return r.history(conn) },
			Spoil: func(context.Context) error {
				_, err := conn.Set(r.token(), []byte("no token"), -1)
				return err
			},
		}
	})
}

func TestWrite_returnsTheResponsesOfTheOperations(t *testing.T) {
	t.Parallel()
	conn := connect(t, testserver.SharedZooKeeper(t).Addr())
	ctx := t.Context()
	r := newResource(t, conn)
	set := &zk.SetDataRequest{Path: string(r), Data: []byte("paid"), Version: 0}
	said, err := zookeeperfence.Write(ctx, conn, r.token(), 5, r.trace(5), set)
	require.NoError(t, err)
	require.Len(t, said, 2)
	assert.Equal(t, string(r)+"/writes/5-0000000000", said[0].String)
	assert.EqualValues(t, 1, said[1].Stat.Version)

	said, err = zookeeperfence.Write(ctx, conn, r.token(), 6, r.trace(6), set)
	require.ErrorIs(t, err, zk.ErrBadVersion, "of the application's own, and so no reason to try again")
	require.Len(t, said, 2)
	require.NoError(t, said[0].Error)
	require.ErrorIs(t, said[1].Error, zk.ErrBadVersion)
	assert.Equal(t, "5", r.kept(t, conn), "nothing was done")
	seen, err := r.history(conn)
	require.NoError(t, err)
	assert.Equal(t, []uint64{5}, seen)

	said, err = zookeeperfence.Write(ctx, conn, r.token(), 7)
	require.NoError(t, err, "the token alone")
	assert.Empty(t, said)
	require.ErrorIs(t, r.write(ctx, conn, 6), fence.ErrStale)
	_, err = zookeeperfence.Write(ctx, conn, r.token(), 7, "no operation")
	require.ErrorContains(t, err, "unknown operation")
}

// It would have data compared as a token from then on: here a stale 101, after 105.
func TestWrite_refusesToSetTheTokensNode(t *testing.T) {
	t.Parallel()
	conn := connect(t, testserver.SharedZooKeeper(t).Addr())
	r := newResource(t, conn)
	for _, token := range []uint64{105, 101} {
		_, err := zookeeperfence.Write(t.Context(), conn, r.token(), token,
			r.trace(token), &zk.SetDataRequest{Path: r.token(), Data: []byte("100"), Version: -1})
		require.ErrorContains(t, err, "a node of its own")
	}
	assert.Empty(t, r.kept(t, conn))
}

func TestWrite_refusesANodeWithoutAToken(t *testing.T) {
	t.Parallel()
	conn := connect(t, testserver.SharedZooKeeper(t).Addr())
	ctx := t.Context()
	r := newResource(t, conn)
	for _, garbage := range []string{"5\n", " 5", "-1", "18446744073709551616", "5.0", strings.Repeat("data", 1000)} {
		_, err := conn.Set(r.token(), []byte(garbage), -1)
		require.NoError(t, err)
		err = r.write(ctx, conn, 6)
		require.ErrorIs(t, err, fence.ErrUnknown, "%q", garbage)
		assert.Less(t, len(err.Error()), 500)
	}
	_, err := conn.Set(r.token(), []byte("5"), -1)
	require.NoError(t, err)
	_, err = zookeeperfence.Write(ctx, conn, r.token(), 7, &zk.DeleteRequest{Path: r.token(), Version: -1})
	require.NoError(t, err, "a write may remove the token together with the resource")
	err = r.write(ctx, conn, 6)
	require.ErrorIs(t, err, fence.ErrUnknown)
	require.ErrorContains(t, err, "Create")
}

func TestCreate_leavesATokenAsItIs(t *testing.T) {
	t.Parallel()
	conn := connect(t, testserver.SharedZooKeeper(t).Addr())
	r := newResource(t, conn)
	require.NoError(t, r.write(t.Context(), conn, 5))
	require.NoError(t, zookeeperfence.Create(t.Context(), conn, r.token(), world))
	assert.Equal(t, "5", r.kept(t, conn))
	require.ErrorIs(t, zookeeperfence.Create(t.Context(), conn, string(r)+"/y/token", world), zk.ErrNoNode)
}
