package migrating

import (
	"context"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/etcd"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/redis"
)

func redsyncWay(rs *redsync.Redsync) way {
	return func(ctx context.Context, work func(context.Context) error) error {
		m := rs.NewMutex("orders/42", redsync.WithExpiry(10*time.Second))
		if err := m.LockContext(ctx); err != nil {
			return err
		}
		defer m.UnlockContext(ctx) //nolint:errcheck // as it is often written
		return work(ctx)
	}
}

func TestRedsync_changeOver(t *testing.T) {
	rdb := startRedis(t)
	rs := redsync.New(redsyncredis.NewPool(rdb))

	client, err := redis.New(rdb, locker.WithTTL(10*time.Second))
	changeOver(t, redsyncWay(rs), testwait.Closed(client, err)(t))
}

func TestRedsync_givesUp(t *testing.T) {
	ctx, rs := t.Context(), redsync.New(redsyncredis.NewPool(startRedis(t)))
	require.NoError(t, rs.NewMutex("orders/42").LockContext(ctx))
	var taken *redsync.ErrTaken
	m := rs.NewMutex("orders/42", redsync.WithTries(2), redsync.WithRetryDelay(time.Millisecond))
	require.ErrorAs(t, m.LockContext(ctx), &taken, "with time left")
	require.ErrorAs(t, m.TryLockContext(ctx), &taken)
}

func TestRedsync_afterTheExpiry(t *testing.T) {
	ctx, rdb := t.Context(), startRedis(t)
	rs := redsync.New(redsyncredis.NewPool(rdb))
	m := rs.NewMutex("orders/42", redsync.WithExpiry(500*time.Millisecond), redsync.WithTimeoutFactor(0.9))
	require.NoError(t, m.LockContext(ctx))
	assert.True(t, m.Until().After(time.Now().Add(-time.Minute)))
	outlast(t, rdb, "orders/42")
	assert.NotEmpty(t, m.Value(), "it says nothing of the loss")
	ok, err := m.UnlockContext(ctx)
	assert.False(t, ok)
	require.ErrorIs(t, err, redsync.ErrLockAlreadyExpired)

	require.NoError(t, rs.NewMutex("orders/42").LockContext(ctx))
	var taken *redsync.ErrTaken
	ok, err = m.ExtendContext(ctx)
	assert.False(t, ok)
	require.ErrorAs(t, err, &taken)
	ok, err = m.UnlockContext(ctx)
	assert.False(t, ok)
	require.ErrorAs(t, err, &taken)
}

func TestRedsync_setNXOnExtendRevives(t *testing.T) {
	ctx, rdb := t.Context(), startRedis(t)
	m := redsync.New(redsyncredis.NewPool(rdb)).NewMutex("orders/42", redsync.WithSetNXOnExtend())
	require.NoError(t, m.LockContext(ctx))
	require.NoError(t, rdb.Del(ctx, "orders/42").Err())
	ok, err := m.ExtendContext(ctx)
	require.NoError(t, err)
	assert.True(t, ok)
}

func redislockWay(locks *redislock.Client) way {
	return func(ctx context.Context, work func(context.Context) error) error {
		lock, err := locks.Obtain(ctx, "orders/42", 10*time.Second, &redislock.Options{
			RetryStrategy: redislock.LinearBackoff(100 * time.Millisecond),
		})
		if err != nil {
			return err
		}
		defer lock.Release(ctx) //nolint:errcheck // as it is often written
		return work(ctx)
	}
}

func TestRedislock_changeOver(t *testing.T) {
	rdb := startRedis(t)
	locks := redislock.New(rdb)

	client, err := redis.New(rdb, locker.WithTTL(10*time.Second))
	changeOver(t, redislockWay(locks), testwait.Closed(client, err)(t))
}

func TestRedislock_anInterruptedWaitSaysThatItWasHeld(t *testing.T) {
	locks := redislock.New(startRedis(t))
	ctx, cancel := context.WithCancel(t.Context())
	_, err := locks.Obtain(ctx, "orders/42", 10*time.Second, nil)
	require.NoError(t, err)
	time.AfterFunc(100*time.Millisecond, cancel)
	_, err = locks.Obtain(ctx, "orders/42", 10*time.Second, &redislock.Options{RetryStrategy: redislock.LinearBackoff(time.Minute)})
	require.ErrorIs(t, err, redislock.ErrNotObtained)
	require.ErrorIs(t, err, context.Canceled)
}

func TestRedislock_afterTheTTL(t *testing.T) {
	ctx, rdb := t.Context(), startRedis(t)
	lock, err := redislock.New(rdb).Obtain(ctx, "orders/42", 300*time.Millisecond, nil)
	require.NoError(t, err)
	outlast(t, rdb, "orders/42")
	left, err := lock.TTL(ctx)
	require.NoError(t, err)
	assert.Zero(t, left)
	require.ErrorIs(t, lock.Refresh(ctx, 10*time.Second, nil), redislock.ErrNotObtained)
	require.ErrorIs(t, lock.Release(ctx), redislock.ErrLockNotHeld)
}

func TestRedislock_theSameTokenObtainsAgain(t *testing.T) {
	ctx, locks := t.Context(), redislock.New(startRedis(t))
	options := &redislock.Options{Token: "worker-7", Metadata: "web-3"}
	for range 2 {
		lock, err := locks.Obtain(ctx, "orders/42", 10*time.Second, options)
		require.NoError(t, err)
		assert.Equal(t, "worker-7", lock.Token())
		assert.Equal(t, "web-3", lock.Metadata())
	}
}

func rueidislockWay(locks rueidislock.Locker) way {
	return func(ctx context.Context, work func(context.Context) error) error {
		held, release, err := locks.WithContext(ctx, "orders/42")
		if err != nil {
			return err
		}
		defer release()
		return work(held)
	}
}

// rueidislockAt asks again every second: notified, it may miss a release (see bench/thirdparty).
func rueidislockAt(t *testing.T, addr string) rueidislock.Locker {
	t.Helper()
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{addr}, DisableCache: true},
		KeyMajority:  1,
		KeyValidity:  10 * time.Second,
		TryNextAfter: time.Second,
	})
	require.NoError(t, err)
	t.Cleanup(locks.Close)
	return locks
}

func TestRueidislock_changeOver(t *testing.T) {
	rdb := startRedis(t)
	locks := rueidislockAt(t, rdb.Options().Addr)

	client, err := redis.New(rdb, locker.WithTTL(10*time.Second))
	changeOver(t, rueidislockWay(locks), testwait.Closed(client, err)(t))
}

func TestRueidislock_aHoldEndsWithTheContextOfItsLock(t *testing.T) {
	rdb := startRedis(t)
	locks := rueidislockAt(t, rdb.Options().Addr)
	ctx, cancel := context.WithCancel(t.Context())
	held, release, err := locks.WithContext(ctx, "orders/42")
	require.NoError(t, err)
	defer release()
	_, _, err = locks.TryWithContext(t.Context(), "orders/42")
	require.ErrorIs(t, err, rueidislock.ErrNotLocked)
	cancel()
	<-held.Done()
	outlast(t, rdb, "rueidislock:0:orders/42")
}

func TestRueidislock_canBeForced(t *testing.T) {
	rdb := startRedis(t)
	locks, thief := rueidislockAt(t, rdb.Options().Addr), rueidislockAt(t, rdb.Options().Addr)
	_, release, err := locks.WithContext(t.Context(), "orders/42")
	require.NoError(t, err)
	defer release()
	_, undo, err := thief.ForceWithContext(t.Context(), "orders/42")
	require.NoError(t, err)
	undo()
}

func TestRueidislock_oneNameIsThreeKeysByDefault(t *testing.T) {
	rdb := startRedis(t)
	locks, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{InitAddress: []string{rdb.Options().Addr}, DisableCache: true},
		KeyValidity:  2 * time.Second,
		TryNextAfter: time.Second,
	})
	require.NoError(t, err)
	t.Cleanup(locks.Close)
	held, release, err := locks.WithContext(t.Context(), "orders/42")
	require.NoError(t, err)
	defer release()
	keys := []string{"rueidislock:0:orders/42", "rueidislock:1:orders/42", "rueidislock:2:orders/42"}
	patience.Until(t, "the third is taken, too", func() bool { return rdb.Exists(t.Context(), keys...).Val() == 3 })

	require.NoError(t, rdb.Del(t.Context(), keys...).Err())
	select {
	case <-held.Done():
	case <-time.After(20 * time.Second):
		require.Fail(t, "it does not hear of its loss")
	}
	assert.Equal(t, context.Canceled, context.Cause(held))
}

func etcdWay(cli *clientv3.Client) way {
	return func(ctx context.Context, work func(context.Context) error) error {
		s, err := concurrency.NewSession(cli, concurrency.WithTTL(10))
		if err != nil {
			return err
		}
		defer s.Close()
		m := concurrency.NewMutex(s, "/locks/orders/42")
		if err := m.Lock(ctx); err != nil {
			return err
		}
		defer m.Unlock(ctx) //nolint:errcheck // as it is often written
		return work(ctx)
	}
}

func startEtcd(t *testing.T) *clientv3.Client {
	t.Helper()
	return testwait.Closed(clientv3.New(clientv3.Config{
		Endpoints: []string{testserver.Etcd(t).Addr()}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
	}))(t)
}

func TestEtcd_changeOver(t *testing.T) {
	cli := startEtcd(t)

	client, err := etcd.New(cli, locker.WithTTL(10*time.Second))
	changeOver(t, etcdWay(cli), testwait.Closed(client, err)(t))
}

func newSession(t *testing.T, cli *clientv3.Client) *concurrency.Session {
	t.Helper()
	return testwait.Closed(concurrency.NewSession(cli, concurrency.WithTTL(10)))(t)
}

func TestEtcd_whatAMutexSays(t *testing.T) {
	ctx, cli := testwait.Context(t, time.Minute), startEtcd(t)
	m := concurrency.NewMutex(newSession(t, cli), "/locks/orders/42")
	require.ErrorIs(t, m.Unlock(ctx), concurrency.ErrLockReleased)
	require.NoError(t, m.Lock(ctx))
	other := concurrency.NewMutex(newSession(t, cli), "/locks/orders/42")
	require.ErrorIs(t, other.TryLock(ctx), concurrency.ErrLocked)
	owned, err := cli.Txn(ctx).If(m.IsOwner()).Commit()
	require.NoError(t, err)
	assert.True(t, owned.Succeeded)
	require.NoError(t, m.Unlock(ctx))
}

// A waiter's key is made before the holder's last write: its token says when it came, and a Header when it was granted.
func TestEtcd_revisionsOfTheTwoAreNotInOneOrder(t *testing.T) {
	ctx, cli := testwait.Context(t, time.Minute), startEtcd(t)
	client := testwait.Closed(etcd.New(cli, locker.WithTTL(10*time.Second)))(t)
	first, m := client.Mutex("orders/42"), client.Mutex("orders/42")
	require.NoError(t, first.Lock(ctx))
	queued := testwait.Go(func() error { return m.Lock(ctx) })
	patience.Until(t, "it waits", func() bool {
		state, err := client.Inspect(ctx, "orders/42")
		return err == nil && len(state.Waiters) == 1
	})

	theirs := concurrency.NewMutex(newSession(t, cli), "/locks/orders/42")
	require.NoError(t, theirs.Lock(ctx))
	require.NoError(t, theirs.Unlock(ctx))
	require.NoError(t, first.Unlock(ctx))
	require.NoError(t, <-queued)
	assert.Less(t, m.FencingToken(), uint64(theirs.Header().Revision), "the later holder's")
	require.NoError(t, m.Unlock(ctx))
}
