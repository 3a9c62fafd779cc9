package redisfence_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/redisfence"
	"github.com/go-locker/locker/internal/test/fencecheck"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestRun_keepsTheRule(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testserver.Redis(t).Addr(), func(o *goredis.Options) { o.PoolSize = 1 })
	fencecheck.Run(t, func(t testing.TB) fencecheck.Fence {
		return fencecheck.Fence{
			Write:   func(ctx context.Context, token uint64) error { return write(ctx, rdb, t.Name(), token) },
			History: func(ctx context.Context) ([]uint64, error) { return history(ctx, rdb, t.Name()) },
			Spoil: func(ctx context.Context, text string) error {
				return rdb.Set(ctx, redisfence.TokenKey(t.Name()), text, 0).Err()
			},
			NoTokens: []string{
				"", "0", "token", "05", " 5", "5\n", "-1", "5.0", "1e3", "18446744073709551616", "99999999999999999999", "184467440737095516150",
			},
		}
	})
}

// counts is how many requests go out.
type counts struct{ atomic.Int64 }

func (c *counts) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (c *counts) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		c.Add(1)
		return next(ctx, cmd)
	}
}

func (c *counts) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next // setting up connections
}

func TestRun_isOneRequest_andOf0None(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testserver.Redis(t).Addr())
	ctx := t.Context()
	require.NoError(t, rdb.Ping(ctx).Err(), "sets up a connection")
	var sent counts
	rdb.AddHook(&sent)
	require.NoError(t, write(ctx, rdb, "x", 2))
	assert.EqualValues(t, 2, sent.Swap(0), "the server does not know the script")
	require.NoError(t, write(ctx, rdb, "x", 2))
	require.ErrorIs(t, write(ctx, rdb, "x", 1), fence.ErrStale)
	assert.EqualValues(t, 2, sent.Swap(0))
	require.ErrorIs(t, write(ctx, rdb, "x", 0), fence.ErrStale)
	require.ErrorIs(t, write(ctx, nil, "x", 0), fence.ErrStale)
	assert.Zero(t, sent.Load())
	require.NoError(t, rdb.ScriptFlush(ctx).Err())
	require.NoError(t, write(ctx, rdb, "x", 2), "the server has forgotten the script")
}

// A script that writes it would have data compared as a token from then on: here a stale 101, after 105.
func TestRun_refusesTheTokensKeyAsOneOfTheScripts(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testserver.Redis(t).Addr())
	ctx := t.Context()
	balance := redisfence.NewScript("redis.call('SET', KEYS[1], 100)")
	for _, token := range []uint64{105, 101} {
		_, err := balance.Run(ctx, rdb, "balance", token, []string{"balance"})
		require.ErrorContains(t, err, "a key of its own")
		require.NotErrorIs(t, err, fence.ErrStale)
	}
	assert.Zero(t, rdb.Exists(ctx, "balance").Val(), "nothing is sent")
}

func TestRun_givesTheScriptItsKeysAndArguments_andReturnsItsReply(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testserver.Redis(t).Addr())
	ctx := t.Context()
	for _, c := range []struct {
		body string
		want any
	}{
		{"return {KEYS[1], KEYS[2], #KEYS, ARGV[1], ARGV[2], #ARGV}", []any{"k1", "k2", int64(2), "a", "7", int64(2)}},
		{"return 'text'", "text"},
		{"return 42", int64(42)},
		{"return redis.call('SET', KEYS[1], ARGV[1])", "OK"},
		{"return redis.call('GET', 'no such key')", nil},
		{"return nil", nil},
		{"", nil},
		{"-- nothing but a remark", nil},
	} {
		reply, err := redisfence.NewScript(c.body).Run(ctx, rdb, "token", 1, []string{"k1", "k2"}, "a", 7)
		require.NoError(t, err, c.body)
		assert.Equal(t, c.want, reply, c.body)
	}
	_, err := redisfence.NewScript("").Run(ctx, rdb, "token", 7, nil)
	require.NoError(t, err)
	assert.Equal(t, "7", rdb.Get(ctx, "token").Val(), "the token alone")
}

// What the script does wrong is told with its own line, and leaves what it had done before.
func TestRun_ofAScriptThatFails(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testserver.Redis(t).Addr())
	ctx := t.Context()
	fails := redisfence.NewScript("redis.call('SET', KEYS[1], 'one')\nredis.call('HSET', KEYS[1], 'two', '2')")
	_, err := fails.Run(ctx, rdb, "token", 5, []string{"x"})
	require.ErrorContains(t, err, "WRONGTYPE")
	require.ErrorContains(t, err, ":2", "the line")
	require.NotErrorIs(t, err, fence.ErrStale)
	assert.Equal(t, "one", rdb.Get(ctx, "x").Val())
	assert.Equal(t, "5", rdb.Get(ctx, "token").Val())
	_, err = redisfence.NewScript("end end").Run(ctx, rdb, "token", 6, nil)
	require.Error(t, err)
	assert.Equal(t, "5", rdb.Get(ctx, "token").Val(), "nothing has run")
	_, err = redisfence.NewScript("return redis.error_reply('MINE it is')").Run(ctx, rdb, "token", 5, nil)
	require.EqualError(t, err, `redisfence: "token": MINE it is`)
	var answer goredis.Error
	require.ErrorAs(t, err, &answer, "the library's own")
	require.EqualError(t, answer, "MINE it is")
	_, err = redisfence.NewScript("return redis.error_reply('NOTOKENS left for this customer')").Run(ctx, rdb, "token", 5, nil)
	require.NotErrorIs(t, err, fence.ErrUnknown)
}

func TestSet(t *testing.T) {
	t.Parallel()
	rdb := connect(t, testserver.Redis(t).Addr())
	ctx := t.Context()
	require.NoError(t, redisfence.Set(ctx, rdb, "x", 5, "five", 0))
	var stale *fence.StaleError
	require.ErrorAs(t, redisfence.Set(ctx, rdb, "x", 4, "four", 0), &stale)
	assert.Equal(t, fence.StaleError{Resource: "x", Token: 4, Newest: 5}, *stale)
	assert.Equal(t, "five", rdb.Get(ctx, "x").Val())
	assert.EqualValues(t, -1, rdb.TTL(ctx, "x").Val(), "no expiry")

	require.NoError(t, redisfence.Set(ctx, rdb, "x", 6, []byte("six"), 50*time.Millisecond))
	eventually(t, "the value expires", func() bool { return rdb.Exists(ctx, "x").Val() == 0 })
	require.ErrorIs(t, redisfence.Set(ctx, rdb, "x", 5, "five", 0), fence.ErrStale, "its token does not")
	require.NoError(t, redisfence.Set(ctx, rdb, "x", 6, 6, time.Hour))
	assert.Greater(t, rdb.TTL(ctx, "x").Val(), 59*time.Minute)

	for _, expiry := range []time.Duration{-1, -time.Second, time.Microsecond, time.Second + 1} {
		require.ErrorContains(t, redisfence.Set(ctx, rdb, "x", 7, "", expiry), "millisecond")
	}
	assert.Equal(t, "6", kept(t, rdb, "x"))
	require.NoError(t, rdb.Set(ctx, redisfence.TokenKey("x"), "", 0).Err())
	err := redisfence.Set(ctx, rdb, "x", 7, "", 0)
	require.ErrorIs(t, err, fence.ErrUnknown)
	require.ErrorContains(t, err, `redisfence: "x": `)
	require.ErrorContains(t, err, `key "fence:{x}" holds no token`)
	require.NoError(t, rdb.Del(ctx, redisfence.TokenKey("x")).Err())
	require.NoError(t, rdb.HSet(ctx, redisfence.TokenKey("x"), "token", 1).Err())
	require.ErrorIs(t, redisfence.Set(ctx, rdb, "x", 7, "", 0), fence.ErrUnknown, "which is no text")
}

// late has the request of the first reach the server when the second has been answered.
func late(t *testing.T, p *testserver.Proxy, first, second func() error) error {
	t.Helper()
	p.HoldRequests(true)
	done := testwait.Go(first)
	eventually(t, "the first request is on its way", func() bool { requests, _ := p.Held(); return requests > 0 })
	require.NoError(t, second())
	p.ReleaseRequests()
	return await(t, done)
}

// A token orders holders, and not the requests of one. Who looks first and writes then, without the
// fence, is overtaken between the two, and the history shows it.
func TestRun_thatArrivesLateIsRefused(t *testing.T) {
	t.Parallel()
	p, slow, direct := behindProxy(t)
	ctx := t.Context()
	fenced := func(rdb *goredis.Client, token uint64) func() error {
		return func() error { return write(ctx, rdb, "x", token) }
	}
	require.ErrorIs(t, late(t, p, fenced(slow, 2), fenced(direct, 3)), fence.ErrStale)
	require.NoError(t, late(t, p, fenced(slow, 3), fenced(direct, 3)), "of the same holder")
	assert.Equal(t, []uint64{3, 3, 3}, seen(t, direct, "x"))

	newest, err := slow.Get(ctx, redisfence.TokenKey("x")).Uint64()
	require.NoError(t, err)
	require.NoError(t, fence.Check("x", 4, newest))
	require.NoError(t, late(t, p, func() error { return slow.RPush(ctx, "x", 4).Err() }, fenced(direct, 5)))
	assert.Error(t, fencecheck.Rising(seen(t, direct, "x")), "%d", seen(t, direct, "x"))
}

// Connections break, and requests are retried: some writes happen twice, none after a newer one.
func TestBrokenConnections_noStaleWriteGetsIn(t *testing.T) {
	t.Parallel()
	p, slow, direct := behindProxy(t)
	require.NoError(t, fencecheck.Disturbed(t.Context(), fencecheck.Fence{
		Write:   func(ctx context.Context, token uint64) error { return write(ctx, slow, "x", token) },
		History: func(ctx context.Context) ([]uint64, error) { return history(ctx, direct, "x") },
	}, 30, p.ResetConns))
}
