package zookeeperfence_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/zookeeperfence"
	"github.com/go-locker/locker/internal/fencecheck"
	"github.com/go-locker/locker/internal/testserver"
	"github.com/go-locker/locker/internal/testwait"
	_ "github.com/go-locker/locker/zookeeper" // registers zookeeper://
)

func TestWrite_keepsTheRule(t *testing.T) {
	s := testserver.ZooKeeper(t)
	conn := connect(t, s.Addr())
	n := 0
	fencecheck.Run(t, func(t testing.TB) fencecheck.Fence {
		n++
		r := newResource(t, conn, fmt.Sprint("/r", n))
		return fencecheck.Fence{
			Write:   func(ctx context.Context, token uint64) error { return r.write(ctx, conn, token) },
			History: func(context.Context) ([]uint64, error) { return r.history(conn) },
		}
	})
}

// Writers on three servers, of which two may lag behind the third.
func TestWrite_keepsTheRule_onAnEnsemble(t *testing.T) {
	g := testserver.ZooKeeperEnsemble(t, 3)
	var conns []*zk.Conn
	for _, addr := range g.Addrs() {
		conns = append(conns, connect(t, addr))
	}
	r := newResource(t, conns[0], "/r")
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
}

// Nobody is connected to anything.
func TestWrite_of0MakesNoRequest(t *testing.T) {
	_, err := zookeeperfence.Write(t.Context(), nil, "/x/token", 0)
	require.ErrorIs(t, err, fence.ErrStale)
}

func TestWrite_returnsTheResponsesOfTheOperations(t *testing.T) {
	conn := connect(t, testserver.ZooKeeper(t).Addr())
	ctx := t.Context()
	r := newResource(t, conn, "/x")
	set := &zk.SetDataRequest{Path: "/x", Data: []byte("paid"), Version: 0}
	said, err := zookeeperfence.Write(ctx, conn, r.token(), 5, r.trace(5), set)
	require.NoError(t, err)
	require.Len(t, said, 2)
	assert.Equal(t, "/x/writes/5-0000000000", said[0].String)
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

// Writes of one holder leave the token's node as it is.
func TestWrite_ofAnEqualTokenDoesNotSetIt(t *testing.T) {
	conn := connect(t, testserver.ZooKeeper(t).Addr())
	r := newResource(t, conn, "/x")
	for range 3 {
		require.NoError(t, r.write(t.Context(), conn, 5))
	}
	_, stat, err := conn.Get(r.token())
	require.NoError(t, err)
	assert.EqualValues(t, 1, stat.Version)
}

func TestWrite_refusesANodeWithoutAToken(t *testing.T) {
	conn := connect(t, testserver.ZooKeeper(t).Addr())
	ctx := t.Context()
	r := newResource(t, conn, "/x")
	for _, garbage := range []string{"token", "5\n", " 5", "-1", "18446744073709551616", "5.0"} {
		_, err := conn.Set(r.token(), []byte(garbage), -1)
		require.NoError(t, err)
		err = r.write(ctx, conn, 6)
		require.ErrorContains(t, err, "no token", "%q", garbage)
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
	require.ErrorContains(t, err, "Create")
	require.ErrorContains(t, err, r.token())
}

// Some make the node while others write to it.
func TestCreate_leavesATokenAsItIs(t *testing.T) {
	conn := connect(t, testserver.ZooKeeper(t).Addr())
	ctx := t.Context()
	_, err := conn.Create("/x", nil, 0, world)
	require.NoError(t, err)
	var all []<-chan error
	for range 10 {
		all = append(all, testwait.Go(func() error {
			if err := zookeeperfence.Create(ctx, conn, "/x/token", world); err != nil {
				return err
			}
			_, err := zookeeperfence.Write(ctx, conn, "/x/token", 5)
			return err
		}))
	}
	for _, done := range all {
		require.NoError(t, await(t, done))
	}
	require.NoError(t, zookeeperfence.Create(ctx, conn, "/x/token", world))
	assert.Equal(t, "5", resource("/x").kept(t, conn))
	require.ErrorIs(t, zookeeperfence.Create(ctx, conn, "/y/token", world), zk.ErrNoNode, "there is no /y")
	require.ErrorIs(t, zookeeperfence.Create(ctx, conn, "/z", nil), zk.ErrInvalidACL)
}

// Who may read and set the token's node may write, and nobody else.
func TestWrite_needsTheRightsOfTheTokensNode(t *testing.T) {
	s := testserver.ZooKeeper(t)
	owner, stranger := connect(t, s.Addr()), connect(t, s.Addr())
	require.NoError(t, owner.AddAuth("digest", []byte("me:secret")))
	require.NoError(t, zookeeperfence.Create(t.Context(), owner, "/token", zk.AuthACL(zk.PermRead|zk.PermWrite)))
	_, err := zookeeperfence.Write(t.Context(), owner, "/token", 1)
	require.NoError(t, err)
	_, err = zookeeperfence.Write(t.Context(), owner, "/token", 1, &zk.CreateRequest{Path: "/x", Acl: world})
	require.NoError(t, err)
	_, err = zookeeperfence.Write(t.Context(), stranger, "/token", 2)
	require.ErrorIs(t, err, zk.ErrNoAuth)
}

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
	s := testserver.ZooKeeper(t)
	p := testserver.NewProxy(t, s.Addr())
	direct, slow := connect(t, s.Addr()), connect(t, p.Addr())
	ctx := t.Context()
	r := newResource(t, direct, "/x")
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

// The transaction itself is late.
func TestWrite_thatArrivesLateIsRefused(t *testing.T) {
	s := testserver.ZooKeeper(t)
	p := testserver.NewProxy(t, s.Addr())
	direct, slow := connect(t, s.Addr()), connect(t, p.Addr())
	ctx := t.Context()
	r := newResource(t, direct, "/x")
	require.NoError(t, r.write(ctx, slow, 1))
	p.HoldReplies(true)
	done := testwait.Go(func() error { return r.write(ctx, slow, 2) })
	eventually(t, "the first has read", func() bool { _, replies := p.Held(); return replies > 40 })
	p.HoldRequests(true)
	p.ReleaseReplies()
	eventually(t, "its transaction is on its way", func() bool { requests, _ := p.Held(); return requests > 40 })
	require.NoError(t, r.write(ctx, direct, 3))
	p.ReleaseRequests()
	require.ErrorIs(t, await(t, done), fence.ErrStale)
	seen, err := r.history(direct)
	require.NoError(t, err)
	assert.Equal(t, []uint64{1, 3}, seen)
}

// What the fence is for: who looks first and writes then is overtaken between the two, and the history shows it.
func TestCheckThenWrite_isOvertaken(t *testing.T) {
	s := testserver.ZooKeeper(t)
	p := testserver.NewProxy(t, s.Addr())
	direct, slow := connect(t, s.Addr()), connect(t, p.Addr())
	ctx := t.Context()
	r := newResource(t, direct, "/x")
	require.NoError(t, r.write(ctx, slow, 1))
	naive := func() error {
		data, _, err := slow.Get(r.token())
		if err != nil {
			return err
		}
		newest, err := strconv.ParseUint(string(data), 10, 64)
		if err != nil {
			return err
		}
		if err := fence.Check(r.token(), 2, newest); err != nil {
			return err
		}
		trace := r.trace(2)
		_, err = slow.Create(trace.Path, nil, trace.Flags, trace.Acl)
		return err
	}
	require.NoError(t, overtaken(t, p, naive, func() error { return r.write(ctx, direct, 3) }))
	seen, err := r.history(direct)
	require.NoError(t, err)
	assert.Error(t, fencecheck.Rising(seen), "%d", seen)
}

// The reply is lost: the outcome is not known, which is neither a stale token nor a wrong version, and the same
// write again has the same effect.
func TestLostReply_isAnError_andTheSameWriteAgainIsNot(t *testing.T) {
	s := testserver.ZooKeeper(t)
	p := testserver.NewProxy(t, s.Addr())
	direct, conn := connect(t, s.Addr()), connect(t, p.Addr())
	ctx := t.Context()
	r := newResource(t, direct, "/x")
	require.NoError(t, r.write(ctx, conn, 1))
	set := func() error {
		_, err := zookeeperfence.Write(ctx, conn, r.token(), 5, &zk.SetDataRequest{Path: "/x", Data: []byte("five"), Version: -1})
		return err
	}
	p.HoldReplies(true)
	done := testwait.Go(set)
	eventually(t, "it has read", func() bool { _, replies := p.Held(); return replies > 40 })
	p.DropReplies(true)
	p.ReleaseReplies()
	eventually(t, "the server has written", func() bool { return r.kept(t, direct) == "5" })
	p.DropReplies(false)
	p.ResetConns()
	err := await(t, done)
	require.ErrorIs(t, err, zk.ErrConnectionClosed)
	require.NotErrorIs(t, err, fence.ErrStale)
	eventually(t, "the connection is back", func() bool { return conn.State() == zk.StateHasSession })
	require.NoError(t, set())
	data, _, err := direct.Get("/x")
	require.NoError(t, err)
	assert.Equal(t, "five", string(data))
}

func TestServerAway_isAnErrorWithinTheContext(t *testing.T) {
	s := testserver.ZooKeeper(t)
	conn := connect(t, s.Addr())
	r := newResource(t, conn, "/x")
	s.Stop()
	require.ErrorIs(t, r.write(withTimeout(t, 200*time.Millisecond), conn, 2), context.DeadlineExceeded)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := testwait.Go(func() error { return r.write(ctx, conn, 2) })
	cancel(locker.ErrLost)
	require.ErrorIs(t, await(t, done), locker.ErrLost)
	require.ErrorIs(t, zookeeperfence.Create(withTimeout(t, 50*time.Millisecond), conn, "/y", world), context.DeadlineExceeded)
	s.Continue()
	require.NoError(t, r.write(t.Context(), conn, 3))
	seen, err := r.history(conn)
	require.NoError(t, err)
	assert.Equal(t, []uint64{3}, seen, "who had given up while it read does not write later")
}

func TestServerGone_isAnError(t *testing.T) {
	s := testserver.ZooKeeper(t)
	conn := connect(t, s.Addr())
	r := newResource(t, conn, "/x")
	s.Kill()
	err := r.write(withTimeout(t, 5*time.Second), conn, 2)
	require.Error(t, err)
	require.NotErrorIs(t, err, fence.ErrStale)
	conn.Close()
	require.ErrorIs(t, r.write(t.Context(), conn, 2), zk.ErrConnectionClosed, "closed by the application")
}

// With a real lock, whose tokens are the ensemble's transactions.
func TestLock_onTheSameEnsemble(t *testing.T) {
	g := testserver.ZooKeeperEnsemble(t, 3)
	ctx := t.Context()
	client, err := locker.Open(ctx, "zookeeper://"+strings.Join(g.Addrs(), ",")+"?tick=100ms", locker.WithTTL(time.Second), locker.WithoutRenewal())
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	conn := connect(t, g.Addrs()...)
	r := newResource(t, conn, "/x")
	m, next := client.Mutex("x"), client.Mutex("x")
	require.NoError(t, m.Lock(ctx))
	stale := m.FencingToken()
	require.NoError(t, r.write(ctx, conn, stale))
	require.NoError(t, next.Lock(ctx), "after the lapse of the first")
	newer := next.FencingToken()
	require.NoError(t, r.write(ctx, conn, newer))
	require.ErrorIs(t, r.write(ctx, conn, stale), fence.ErrStale)

	g.Leader().Kill()
	eventually(t, "there is another leader, and the token", func() bool {
		err := r.write(withTimeout(t, time.Second), conn, stale)
		require.Error(t, err)
		return errors.Is(err, fence.ErrStale)
	})
	eventually(t, "the newer one writes", func() bool { return r.write(withTimeout(t, time.Second), conn, newer) == nil })
}
