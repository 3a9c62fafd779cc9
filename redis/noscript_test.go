package redis_test

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

func flushScripts(t *testing.T, rdb *goredis.Client) {
	t.Helper()
	require.NoError(t, rdb.ScriptFlush(t.Context()).Err())
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
