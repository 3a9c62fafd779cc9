package redigofence_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/redigofence"
	"github.com/go-locker/locker/fence/redisfence"
	"github.com/go-locker/locker/internal/test/fencecheck"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.Tests(m)) }

func newPool(t testing.TB, addr string, opts ...redis.DialOption) *redis.Pool {
	t.Helper()
	return testwait.Closed(&redis.Pool{
		MaxIdle: 10,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", addr, opts...)
		},
	}, nil)(t)
}

// do makes a request past the fence.
func do(ctx context.Context, p *redis.Pool, command string, args ...any) (any, error) {
	c, err := p.GetContext(ctx)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return redis.DoContext(c, ctx, command, args...)
}

// appends leaves a trace of each write, so that history can tell of them.
var appends = redigofence.NewScript("return redis.call('RPUSH', KEYS[1], ARGV[1])")

func write(ctx context.Context, p *redis.Pool, key string, token uint64) error {
	_, err := appends.Run(ctx, p, redigofence.TokenKey(key), token, []string{key}, strconv.FormatUint(token, 10))
	return err
}

func history(ctx context.Context, p *redis.Pool, key string) ([]uint64, error) {
	return redis.Uint64s(do(ctx, p, "LRANGE", key, 0, -1))
}

func TestRun_keepsTheRule(t *testing.T) {
	t.Parallel()
	p := newPool(t, testserver.Redis(t).Addr())
	fencecheck.Run(t, func(t testing.TB) fencecheck.Fence {
		return fencecheck.Fence{
			Write:   func(ctx context.Context, token uint64) error { return write(ctx, p, t.Name(), token) },
			History: func(ctx context.Context) ([]uint64, error) { return history(ctx, p, t.Name()) },
			Spoil: func(ctx context.Context, text string) error {
				_, err := do(ctx, p, "SET", redigofence.TokenKey(t.Name()), text)
				return err
			},
		}
	})
}

// It is the same script, on the same keys.
func TestMixedWithRedisfence(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	p := newPool(t, s.Addr())
	rdb := testwait.Closed(goredis.NewClient(&goredis.Options{Addr: s.Addr()}), nil)(t)
	ctx := t.Context()
	require.NoError(t, redisfence.Set(ctx, rdb, "x", 5, "five", 0))
	require.ErrorIs(t, redigofence.Set(ctx, p, "x", 4, "four", 0), fence.ErrStale)
	require.NoError(t, redigofence.Set(ctx, p, "x", 6, "six", time.Hour))
	require.ErrorIs(t, redisfence.Set(ctx, rdb, "x", 5, "five", 0), fence.ErrStale)
	assert.Equal(t, "six", rdb.Get(ctx, "x").Val())
	assert.Greater(t, rdb.TTL(ctx, "x").Val(), 59*time.Minute)
}
