package migrating

import (
	"context"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/redis"
)

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
	changeOver(t, rueidislockWay(locks), made(t)(client, err))
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
	require.Eventually(t, func() bool { // the third is taken a little later
		return rdb.Exists(t.Context(), keys...).Val() == 3
	}, 20*time.Second, 5*time.Millisecond)

	require.NoError(t, rdb.Del(t.Context(), keys...).Err())
	select {
	case <-held.Done():
	case <-time.After(20 * time.Second):
		require.Fail(t, "it does not hear of its loss")
	}
	assert.Equal(t, context.Canceled, context.Cause(held))
}
