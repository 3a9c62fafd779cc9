package redis_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/redis"
)

// knownAt has the server remember a last token of x: else a small one would not be accepted.
func knownAt(t *testing.T, rdb *goredis.Client, last uint64) {
	t.Helper()
	require.NoError(t, rdb.HSet(t.Context(), "{x}", "token", last, "lapsed", last).Err())
	require.NoError(t, rdb.PExpire(t.Context(), "{x}", keep+time.Minute).Err())
}

func propose(t *testing.T, d *redis.Driver, ttl time.Duration, token uint64) driver.RaisableLease {
	t.Helper()
	l, err := d.Propose(t.Context(), driver.Request{Name: "x", TTL: ttl}, token)
	require.NoError(t, err)
	return l
}

func TestPropose_acceptsOnlyWhatIsLargerThanTheLast(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr())
	d := driverOf(t, rdb)
	knownAt(t, rdb, 0)
	for _, step := range []struct{ proposed, got uint64 }{
		{100, 100}, {101, 101}, {101, 102}, {50, 103}, {1, 104}, {1000, 1000},
	} {
		l := propose(t, d, time.Minute, step.proposed)
		assert.Equal(t, step.got, l.Token(), "proposed %d", step.proposed)
		require.NoError(t, l.Release(t.Context()))
	}
	knownAt(t, rdb, 1<<53-2)
	l := propose(t, d, time.Minute, 5)
	assert.Equal(t, uint64(1<<53-1), l.Token())
	require.NoError(t, l.Release(t.Context()))
	_, err := d.Propose(t.Context(), driver.Request{Name: "x", TTL: time.Minute}, 5)
	require.ErrorContains(t, err, "2^53")
	for _, bad := range []uint64{0, 1 << 53, 1<<64 - 1} {
		_, err := d.Propose(t.Context(), driver.Request{Name: "y", TTL: time.Minute}, bad)
		require.ErrorIs(t, err, locker.ErrUnsupported, "%d", bad)
	}
	assert.Zero(t, rdb.Exists(t.Context(), "{y}").Val())
}

func TestPropose_ofAFreeNameRunsWhatATakeRuns(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr())
	loadScripts(t, rdb)
	d := driverOf(t, rdb)
	pair := func() map[string]int {
		resetStats(t, rdb)
		l := propose(t, d, time.Minute, uint64(time.Now().UnixMicro()))
		require.NoError(t, l.Release(t.Context()))
		calls := commandCalls(t, rdb)
		maps.DeleteFunc(calls, func(name string, _ int) bool { return name == "info" || strings.HasPrefix(name, "config") })
		return calls
	}
	pair() // the name is new, and so is the server's clock
	assert.Equal(t, map[string]int{"evalsha": 2, "time": 1, "hmget": 2, "hset": 1, "pexpire": 1, "pttl": 1, "hdel": 1}, pair())
}

// delayed has each round trip take so long.
type delayed time.Duration

func (d delayed) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (d delayed) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		time.Sleep(time.Duration(d))
		return next(ctx, cmd)
	}
}

func (d delayed) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		time.Sleep(time.Duration(d))
		return next(ctx, cmds)
	}
}

func TestPropose_ofManyGoroutinesSharesRoundTrips(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr())
	loadScripts(t, rdb)
	d := driverOf(t, rdb)
	require.NoError(t, propose(t, d, time.Minute, 1).Release(t.Context()), "makes the server's clock known")
	var sent roundTrips
	rdb.AddHook(&sent)
	rdb.AddHook(delayed(10 * time.Millisecond))
	const n = 64
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			l, err := d.Propose(t.Context(), driver.Request{Name: fmt.Sprint(i), TTL: time.Minute}, uint64(time.Now().UnixMicro()))
			if assert.NoError(t, err) {
				assert.NoError(t, l.Release(t.Context()))
			}
		})
	}
	all.Wait()
	assert.Less(t, sent.commands.Load()+sent.pipelines.Load(), int64(n/2), "round trips for %d scripts", 2*n)
}

func TestPropose_aDeniedOneChangesNothing(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr())
	d := driverOf(t, rdb)
	knownAt(t, rdb, 0)
	holder := propose(t, d, time.Minute, 100)
	before := rdb.HGetAll(t.Context(), "{x}").Val()
	expires := rdb.PExpireTime(t.Context(), "{x}").Val()
	_, err := d.Propose(t.Context(), driver.Request{Name: "x", TTL: time.Hour}, 500)
	require.ErrorIs(t, err, locker.ErrHeld)
	assert.Equal(t, before, rdb.HGetAll(t.Context(), "{x}").Val())
	assert.Equal(t, expires, rdb.PExpireTime(t.Context(), "{x}").Val())
	require.NoError(t, holder.Release(t.Context()))
	assert.EqualValues(t, 101, propose(t, d, time.Minute, 101).Token(), "last is still 100")
}

func TestRaise_isTheOwnersAndOnlyUpwards(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	ctx := t.Context()
	rdb := connect(t, s.Addr())
	d := driverOf(t, rdb)
	knownAt(t, rdb, 0)
	first := propose(t, d, time.Minute, 100)
	stored := func() uint64 {
		n, err := rdb.HGet(ctx, "{x}", "token").Uint64()
		require.NoError(t, err)
		return n
	}
	require.NoError(t, first.Raise(ctx, 100), "to what it is")
	require.NoError(t, first.Raise(ctx, 200))
	assert.EqualValues(t, 200, first.Token())
	require.NoError(t, first.Raise(ctx, 200), "sent again")
	for _, bad := range []uint64{199, 100, 1, 0, 1 << 53, 1<<53 + 1, 1 << 60, 1<<64 - 1} {
		require.ErrorIs(t, first.Raise(ctx, bad), locker.ErrLost, "to %d", bad)
		assert.EqualValues(t, 200, stored(), "after a raise to %d", bad)
		assert.EqualValues(t, 200, first.Token())
	}
	require.NoError(t, rdb.HSet(ctx, "{x}", "token", 1<<53-3).Err())
	require.NoError(t, first.Raise(ctx, 1<<53-2))
	assert.Equal(t, uint64(1<<53-2), stored(), "exactly")
	require.NoError(t, first.Release(ctx))
	require.NoError(t, first.Release(ctx), "again, with the raised token")
	require.ErrorIs(t, first.Raise(ctx, 1<<53-1), locker.ErrLost, "after its release")
	second := propose(t, d, time.Minute, 5)
	assert.Equal(t, uint64(1<<53-1), second.Token(), "above all that was raised")
	require.ErrorIs(t, first.Raise(ctx, 1<<53-1), locker.ErrLost, "when another holds")
	assert.Equal(t, uint64(1<<53-1), stored())
}

func TestRaise_afterLapseIsRefused(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr())
	d := driverOf(t, rdb)
	knownAt(t, rdb, 0)
	l := propose(t, d, time.Minute, 100)
	expire(t, rdb, "{x}")
	require.ErrorIs(t, l.Raise(t.Context(), 200), locker.ErrLost)
	assert.Equal(t, "100", rdb.HGet(t.Context(), "{x}", "token").Val())
	require.NoError(t, rdb.FlushAll(t.Context()).Err())
	require.ErrorIs(t, l.Raise(t.Context(), 200), locker.ErrLost, "after FLUSHALL")
	assert.Zero(t, rdb.Exists(t.Context(), "{x}").Val())
}

// A raise that was not answered leaves the lease with its smaller token; its release and its loss are
// still told apart.
func TestRaise_withoutAnAnswer(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, heedingCtx)
	ctx := t.Context()
	knownAt(t, f.direct, 0)
	lease, err := f.driver.Propose(ctx, driver.Request{Name: "x", TTL: time.Minute}, 100)
	require.NoError(t, err)
	f.proxy.DropReplies(true)
	require.Error(t, lease.Raise(withTimeout(t, 30*time.Millisecond), 200))
	f.proxy.DropReplies(false)
	eventually(t, "the server has raised it", func() bool { return f.direct.HGet(ctx, "{x}", "token").Val() == "200" })
	expire(t, f.direct, "{x}")
	require.NoError(t, take(t, driverOf(t, f.direct), "x", time.Minute).Release(ctx))
	assert.ErrorIs(t, lease.Release(ctx), locker.ErrLost)
}
