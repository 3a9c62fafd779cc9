package redis_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/redis"
)

// What WAIT does not close. One replica has acknowledged the take, and the other one, which knows nothing of it,
// is made the primary. The lock is lost: a second owner takes it while the first believes that it holds it.
// What is left of the promise is the order of the tokens, by which a resource refuses the first.
func TestWaitReplicas_doesNotSaveTheLockIfAnotherReplicaIsPromoted(t *testing.T) {
	t.Parallel()
	primary, replicas := replicated(t, 2)
	ctx := t.Context()
	informed, ignorant := replicas[0], replicas[1]
	ignorant.Detach()

	first := waiting(t, connect(t, primary.Addr()), 1, time.Second, locker.WithTTL(time.Minute)).Mutex("x")
	require.NoError(t, first.Lock(ctx), "one replica has acknowledged")
	assert.True(t, isHeldAt(t, connect(t, informed.Addr()), keyOf("x")))
	assert.False(t, isHeldAt(t, connect(t, ignorant.Addr()), keyOf("x")))

	primary.Kill()
	ignorant.Promote()
	second := clientOf(t, connect(t, ignorant.Addr())).Mutex("x")
	require.NoError(t, second.TryLock(ctx), "the new primary knows of no holder")

	assert.NotZero(t, first.FencingToken(), "the first believes that it holds the lock")
	select {
	case <-first.Hold().Lost():
		t.Error("nobody can have told the first")
	default:
	}
	assert.Greater(t, second.FencingToken(), first.FencingToken())
	require.NotErrorIs(t, first.Extend(withTimeout(t, time.Second)), locker.ErrLost, "its server is dead, and says nothing")
	primary.Restart() // for Close, which would go on trying to release
}

// And what it does save: any replica that has acknowledged.
func TestWaitReplicas_savesTheLockIfAReplicaThatHasAcknowledgedIsPromoted(t *testing.T) {
	t.Parallel()
	primary, replicas := replicated(t, 2)
	ctx := t.Context()
	d := driverOf(t, connect(t, primary.Addr()), redis.WaitReplicas(2, time.Second))
	first := take(t, d, "x", time.Minute)
	primary.Kill()
	for _, s := range replicas {
		s.Promote()
		rdb := connect(t, s.Addr())
		_, err := claims.Take(ctx, driverOf(t, rdb), driver.Request{Name: "x", TTL: time.Minute})
		require.ErrorIs(t, err, locker.ErrHeld)
		token, err := rdb.HGet(ctx, "{x}", "token").Uint64()
		require.NoError(t, err)
		assert.Equal(t, first.Token(), token)
	}
}
