// Package migrating runs the code of docs/migrating.md and docs/changeover.md on real servers: the
// locks of other libraries, ours in their place, and both of them in the time between. A test of
// docs compares the pages with this package.
package migrating

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	_ "github.com/go-locker/locker/memory"
	"github.com/go-locker/locker/zookeeper"
)

// way does its work under a lock called orders/42.
type way func(ctx context.Context, work func(context.Context) error) error

// ours is the way of the last release.
func ours(client *locker.Client) way {
	return func(ctx context.Context, work func(context.Context) error) error {
		return client.Mutex("orders/42").Do(ctx, work)
	}
}

// both is the way of the release between: our lock, and theirs within it.
func both(client *locker.Client, theirs way) way {
	return func(ctx context.Context, work func(context.Context) error) error {
		return client.Mutex("orders/42").Do(ctx, func(ctx context.Context) error {
			return theirs(ctx, work)
		})
	}
}

// changeOver is what the page says of three releases: neighbours exclude each other, the first and the last do not.
func changeOver(t *testing.T, theirs way, client *locker.Client) {
	t.Helper()
	both, ours := both(client, theirs), ours(client)
	for _, pair := range []struct {
		first, second way
		name          string
	}{
		{theirs, theirs, "theirs, theirs"},
		{theirs, both, "theirs, both"},
		{both, theirs, "both, theirs"},
		{both, both, "both, both"},
		{both, ours, "both, ours"},
		{ours, both, "ours, both"},
		{ours, ours, "ours, ours"},
	} {
		t.Run(pair.name, func(t *testing.T) { excludes(t, pair.first, pair.second) })
	}
	t.Run("theirs and ours do not exclude each other", func(t *testing.T) {
		together := false
		require.NoError(t, theirs(testwait.Context(t, time.Minute), func(ctx context.Context) error {
			return ours(ctx, func(context.Context) error { together = true; return nil })
		}))
		assert.True(t, together)
	})
}

// excludes requires that the second does not begin its work before the first has ended, and does then.
func excludes(t *testing.T, first, second way) {
	t.Helper()
	ctx := testwait.Context(t, time.Minute)
	begun, end := make(chan struct{}), make(chan struct{})
	var ended, overlap atomic.Bool
	one := testwait.Go(func() error {
		return first(ctx, func(context.Context) error {
			close(begun)
			<-end
			ended.Store(true)
			return nil
		})
	})
	select {
	case <-begun:
	case err := <-one:
		require.NoError(t, err, "the first")
	}
	two := testwait.Go(func() error {
		return second(ctx, func(context.Context) error {
			overlap.Store(!ended.Load())
			return nil
		})
	})
	time.Sleep(100 * time.Millisecond) // enough to see most that do not exclude each other, and never too little for those that do
	close(end)
	require.NoError(t, <-one, "the first")
	require.NoError(t, <-two, "the second")
	assert.False(t, overlap.Load(), "both were at work")
}

func startRedis(t *testing.T) *goredis.Client {
	t.Helper()
	return testwait.Closed(goredis.NewClient(&goredis.Options{Addr: testserver.Redis(t).Addr()}), nil)(t)
}

// outlast waits until a Redis key is gone.
func outlast(t *testing.T, rdb *goredis.Client, key string) {
	t.Helper()
	patience.Until(t, key+" is gone", func() bool { return rdb.Exists(t.Context(), key).Val() == 0 })
}

// From one backend of ours to another, it is the same.
func TestOurs_changeOver(t *testing.T) {
	before, after := testwait.Closed(locker.Open(t.Context(), "mem://before"))(t), testwait.Closed(locker.Open(t.Context(), "mem://after"))(t)
	changeOver(t, ours(before), after)
}

// What ours says where theirs had words of its own.
func TestOurs_errors(t *testing.T) {
	ctx := t.Context()
	client := testwait.Closed(locker.Open(ctx, "mem://errors", locker.WithMetadata("web-3")))(t)
	m := client.Mutex("orders/42", locker.WithTTL(10*time.Second))
	hold, err := m.Acquire(ctx)
	require.NoError(t, err)
	assert.Positive(t, hold.Token())
	require.NoError(t, hold.Extend(ctx))
	assert.True(t, hold.Deadline().After(time.Now()))
	assert.Empty(t, hold.Lost())
	require.ErrorIs(t, m.TryLock(ctx), locker.ErrHeld) // the holder's own, too: it is not reentrant
	_, err = m.TryAcquire(ctx)
	require.ErrorIs(t, err, locker.ErrHeld)
	err = m.Lock(testwait.Context(t, 100*time.Millisecond))
	require.ErrorIs(t, err, locker.ErrHeld)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	state, err := client.Inspect(ctx, "orders/42")
	require.NoError(t, err)
	assert.Equal(t, "web-3", state.Holder.Metadata)
	require.NoError(t, hold.Unlock(ctx))
	require.ErrorIs(t, hold.Unlock(ctx), locker.ErrNotHeld)
	require.ErrorIs(t, m.Unlock(ctx), locker.ErrNotHeld)

	brief := client.Mutex("orders/42", locker.WithTTL(50*time.Millisecond), locker.WithoutRenewal())
	require.NoError(t, brief.Lock(ctx))
	<-brief.Hold().Lost()
	assert.Zero(t, brief.FencingToken())
	require.ErrorIs(t, brief.Extend(ctx), locker.ErrLost)
	require.ErrorIs(t, brief.Unlock(ctx), locker.ErrLost)

	require.ErrorIs(t, brief.Do(ctx, func(ctx context.Context) error {
		<-ctx.Done()
		assert.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
		return nil
	}), locker.ErrLost)
}

func zkWay(conn *zk.Conn) way {
	return func(ctx context.Context, work func(context.Context) error) error {
		l := zk.NewLock(conn, "/locks/orders-42", zk.WorldACL(zk.PermAll))
		if err := l.Lock(); err != nil {
			return err
		}
		defer l.Unlock() //nolint:errcheck // as it is often written
		return work(ctx)
	}
}

const (
	timeout  = 2 * time.Second
	patience = testwait.Patience(20 * time.Second)
)

func connect(t *testing.T) (conn *zk.Conn, servers []string) {
	t.Helper()
	servers = []string{testserver.ZooKeeper(t).Addr()}
	conn, _, err := zk.Connect(servers, timeout)
	require.NoError(t, err)
	t.Cleanup(conn.Close)
	return conn, servers
}

func TestZooKeeper_changeOver(t *testing.T) {
	conn, servers := connect(t)

	client, err := zookeeper.New(servers, locker.WithTTL(timeout))
	changeOver(t, zkWay(conn), testwait.Closed(client, err)(t))
}

func TestZooKeeper_whatALockSays(t *testing.T) {
	conn, _ := connect(t)
	l := zk.NewLock(conn, "/locks/orders-42", zk.WorldACL(zk.PermAll))
	require.ErrorIs(t, l.Unlock(), zk.ErrNotLocked)
	require.NoError(t, l.LockWithData([]byte("web-3")))
	require.ErrorIs(t, l.Lock(), zk.ErrDeadlock)
	children, _, err := conn.Children("/locks/orders-42")
	require.NoError(t, err)
	require.Len(t, children, 1)
	require.NoError(t, conn.Delete("/locks/orders-42/"+children[0], -1))
	require.ErrorIs(t, l.Unlock(), zk.ErrNoNode)
}

func TestZooKeeper_theTTLIsThatOfTheSession(t *testing.T) {
	_, servers := connect(t)
	acl := zk.WorldACL(zk.PermAll)
	d, err := zookeeper.NewDriver(servers, zookeeper.ACL(acl))
	require.NoError(t, err)
	client := testwait.Closed(locker.New(d, locker.WithTTL(timeout), locker.WithMetadata("web-3")))(t)
	m := client.Mutex("orders/42")
	require.NoError(t, m.Lock(t.Context()))
	assert.LessOrEqual(t, time.Until(m.Hold().Deadline()), timeout)
	require.NoError(t, m.Unlock(t.Context()))
}
