package zookeeperfence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/zookeeperfence"
	"github.com/go-locker/locker/internal/test/fencecheck"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
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

// Writers on three servers, of which two may lag behind the third, which is then killed.
func TestWrite_onAnEnsemble(t *testing.T) {
	testwait.OnlyNightly(t, "a write is one transaction, which TestWrite_keepsTheRule shows on one server")
	t.Parallel()
	g := testserver.ZooKeeperEnsemble(t, 3)
	var conns []*zk.Conn
	for _, addr := range g.Addrs() {
		conns = append(conns, connect(t, addr))
	}
	r := newResource(t, conns[0])
	f := fencecheck.Fence{
		Write: func(ctx context.Context, token uint64) error {
			conn := conns[token%uint64(len(conns))]
			if _, err := conn.Sync(r.token()); err != nil { // the node may be new there
				return err
			}
			return r.write(ctx, conn, token)
		},
		History: func(context.Context) ([]uint64, error) {
			if _, err := conns[0].Sync(string(r)); err != nil {
				return nil, err
			}
			return r.history(conns[0])
		},
	}
	for _, s := range fencecheck.Scenarios() {
		if s.Name == "many writers at once" {
			require.NoError(t, s.Check(t.Context(), f))
		}
	}

	const stale, newer = 1000, 1001
	conn := connect(t, g.Addrs()...)
	require.NoError(t, r.write(t.Context(), conn, newer))
	g.Leader().Kill()
	eventually(t, "there is another leader, and the token", func() bool {
		err := r.write(withTimeout(t, time.Second), conn, stale)
		require.Error(t, err)
		return errors.Is(err, fence.ErrStale)
	})
	eventually(t, "the newer one writes", func() bool { return r.write(withTimeout(t, time.Second), conn, newer) == nil })
}

// Nobody is connected to anything.
func TestWrite_of0MakesNoRequest(t *testing.T) {
	t.Parallel()
	_, err := zookeeperfence.Write(t.Context(), nil, "/x/token", 0)
	require.ErrorIs(t, err, fence.ErrStale)
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

// Writes of one holder leave the token's node as it is.
func TestWrite_ofAnEqualTokenDoesNotSetIt(t *testing.T) {
	t.Parallel()
	conn := connect(t, testserver.SharedZooKeeper(t).Addr())
	r := newResource(t, conn)
	for range 3 {
		require.NoError(t, r.write(t.Context(), conn, 5))
	}
	_, stat, err := conn.Get(r.token())
	require.NoError(t, err)
	assert.EqualValues(t, 1, stat.Version)
}

func TestWrite_refusesANodeWithoutAToken(t *testing.T) {
	t.Parallel()
	conn := connect(t, testserver.SharedZooKeeper(t).Addr())
	ctx := t.Context()
	r := newResource(t, conn)
	for _, garbage := range []string{"token", "5\n", " 5", "-1", "18446744073709551616", "5.0", strings.Repeat("data", 1000)} {
		_, err := conn.Set(r.token(), []byte(garbage), -1)
		require.NoError(t, err)
		err = r.write(ctx, conn, 6)
		require.ErrorIs(t, err, fence.ErrUnknown, "%q", garbage)
		assert.Less(t, len(err.Error()), 500)
		require.ErrorContains(t, err, fmt.Sprintf("zookeeperfence: %q: ", r.token()))
		require.NotErrorIs(t, err, fence.ErrStale, "%q", garbage)
	}
	for _, none := range []string{"", "0"} {
		_, err := conn.Set(r.token(), []byte(none), -1)
		require.NoError(t, err)
		require.NoError(t, r.write(ctx, conn, 6), "%q", none)
	}
	_, err := zookeeperfence.Write(ctx, conn, r.token(), 7, &zk.DeleteRequest{Path: r.token(), Version: -1})
	require.NoError(t, err, "a write may remove the token together with the resource")
	err = r.write(ctx, conn, 6)
	require.ErrorIs(t, err, zk.ErrNoNode)
	require.ErrorIs(t, err, fence.ErrUnknown)
	require.ErrorContains(t, err, "Create")
	require.ErrorContains(t, err, r.token())
}

// Some make the node while others write to it.
func TestCreate_leavesATokenAsItIs(t *testing.T) {
	t.Parallel()
	conn := connect(t, testserver.SharedZooKeeper(t).Addr())
	ctx := t.Context()
	x := string(newResource(t, conn)) + "/x"
	_, err := conn.Create(x, nil, 0, world)
	require.NoError(t, err)
	var all []<-chan error
	for range 10 {
		all = append(all, testwait.Go(func() error {
			if err := zookeeperfence.Create(ctx, conn, x+"/token", world); err != nil {
				return err
			}
			_, err := zookeeperfence.Write(ctx, conn, x+"/token", 5)
			return err
		}))
	}
	for _, done := range all {
		require.NoError(t, await(t, done))
	}
	require.NoError(t, zookeeperfence.Create(ctx, conn, x+"/token", world))
	assert.Equal(t, "5", resource(x).kept(t, conn))
	require.ErrorIs(t, zookeeperfence.Create(ctx, conn, x+"/y/token", world), zk.ErrNoNode, "there is no y")
	require.ErrorIs(t, zookeeperfence.Create(ctx, conn, x+"/z", nil), zk.ErrInvalidACL)
}

// Who may read and set the token's node may write, and nobody else.
func TestWrite_needsTheRightsOfTheTokensNode(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	owner, other := connect(t, s.Addr()), connect(t, s.Addr())
	x := string(newResource(t, owner)) + "/x"
	require.NoError(t, owner.AddAuth("digest", []byte("me:secret")))
	require.NoError(t, zookeeperfence.Create(t.Context(), owner, x, zk.AuthACL(zk.PermRead|zk.PermWrite)))
	_, err := zookeeperfence.Write(t.Context(), owner, x, 1)
	require.NoError(t, err)
	_, err = zookeeperfence.Write(t.Context(), owner, x, 1, &zk.CreateRequest{Path: x + "y", Acl: world})
	require.NoError(t, err)
	_, err = zookeeperfence.Write(t.Context(), other, x, 2)
	require.ErrorIs(t, err, zk.ErrNoAuth)
}
