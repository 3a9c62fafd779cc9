package redis_test

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
)

func flushScripts(t *testing.T, rdb *goredis.Client) {
	t.Helper()
	require.NoError(t, rdb.ScriptFlush(t.Context()).Err())
}

func TestNoScript_everyOperationBringsItsOwn(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	ctx := t.Context()
	rdb := connect(t, s.Addr())
	c := clientOf(t, rdb)
	m, other := c.Mutex("x"), c.Mutex("x")
	for range 3 {
		for _, step := range []struct {
			name string
			do   func() error
			want error
		}{
			{"Lock", func() error { return m.Lock(ctx) }, nil},
			{"TryLock", func() error { return other.TryLock(ctx) }, locker.ErrHeld},
			{"Extend", func() error { return m.Extend(ctx) }, nil},
			{"Unlock", func() error { return m.Unlock(ctx) }, nil},
		} {
			flushScripts(t, rdb)
			err := step.do()
			require.ErrorIs(t, err, step.want, step.name)
		}
	}
	lease, err := claims.Propose(ctx, driverOf(t, rdb), driver.Request{Name: "y", TTL: time.Minute}, 7)
	require.NoError(t, err)
	flushScripts(t, rdb)
	require.NoError(t, lease.Raise(ctx, lease.Token()+1))
}

// What a failover leaves that has forgotten the hold, and the scripts; another has come since.
func TestNoScript_isNoTry(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr())
	ctx := t.Context()
	lease := take(t, driverOf(t, rdb), "locker:x", time.Minute)
	require.NoError(t, rdb.HSet(ctx, keyOf("x"), "owner", "another", "token", lease.Token()+1, "lapsed", lease.Token()-1).Err())
	require.NoError(t, rdb.ScriptFlush(ctx).Err())
	require.ErrorIs(t, lease.Release(ctx), locker.ErrLost)
}
