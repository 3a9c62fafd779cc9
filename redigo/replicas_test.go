package redigo_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

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
