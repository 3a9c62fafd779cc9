package redigo_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/redigo"
)

func TestWaitReplicas(t *testing.T) {
	t.Parallel()
	primary := testserver.Redis(t)
	replica := testserver.Redis(t, testserver.RedisReplicaOf(primary))
	ctx := t.Context()
	d, err := redigo.NewDriver(newPool(t, primary.Addr()), redigo.WaitReplicas(1, time.Second))
	require.NoError(t, err)
	byOption, err := locker.New(d, locker.WithoutRenewal())
	require.NoError(t, err)
	defer func() { assert.NoError(t, byOption.Close()) }()
	byURL := openClient(t, "redigo://"+primary.Addr()+"?replicas=1&replica_timeout=1s", locker.WithoutRenewal())

	for name, c := range map[string]*locker.Client{"option": byOption, "URL": byURL} {
		m := c.Mutex(name)
		require.NoError(t, m.Lock(ctx))
		require.NoError(t, m.Extend(ctx))
		assert.True(t, isHeld(t, replica, name), "a replica has it when Lock returns")

		replica.Detach()
		err := m.Extend(ctx)
		require.ErrorContains(t, err, "0 of 1 replicas")
		require.NotErrorIs(t, err, locker.ErrLost)
		assert.NotZero(t, m.FencingToken(), "the old deadline stands")
		require.ErrorIs(t, c.Mutex(name).TryLock(ctx), locker.ErrHeld, "what is no grant waits for nobody")
		require.NoError(t, m.Unlock(ctx), "nor does a release")
		err = m.Lock(ctx)
		require.ErrorContains(t, err, "0 of 1 replicas")
		require.NotErrorIs(t, err, locker.ErrHeld)
		eventually(t, "what too few have acknowledged is given back", func() bool { return !isHeld(t, primary, name) })

		start := time.Now()
		err = m.Lock(withTimeout(t, 100*time.Millisecond))
		require.Error(t, err)
		assert.Less(t, time.Since(start), 2*time.Second)
		replica.Reattach()
		replica.WaitSynced(primary)
	}
}

// What is no grant needs no replica, and so no right to WAIT either.
func TestWaitReplicas_withoutTheRight(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisConfig("user lock on >"+secret+toLock))
	ctx := t.Context()
	holder := clientOf(t, newPool(t, s.Addr())).Mutex("x")
	require.NoError(t, holder.Lock(ctx))
	c := openClient(t, "redigo://lock:"+secret+"@"+s.Addr()+"?replicas=1")
	require.ErrorIs(t, c.Mutex("x").TryLock(ctx), locker.ErrHeld)
	require.NoError(t, holder.Unlock(ctx))
	require.ErrorContains(t, c.Mutex("x").TryLock(ctx), "NOPERM")
	eventually(t, "what was taken is released", func() bool { return !isHeld(t, s, "x") })
}
