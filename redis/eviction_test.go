package redis_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// logs is what a Client has logged.
type logs struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logs) warnings() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), "maxmemory-policy")
}

func (l *logs) option() locker.Option {
	return locker.WithLogger(slog.New(slog.NewTextHandler(l, nil)))
}

// A server that is out of memory, and may, removes the keys of locks that are held. The holder finds out, and the log has said so.
func TestEviction_losesHeldLocksAndIsSaidOnce(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisArgs("--maxmemory", "3mb", "--maxmemory-policy", "allkeys-lru"))
	ctx, rdb := t.Context(), connect(t, s.Addr())
	assert.Contains(t, clientOf(t, rdb).Guarantees()[locker.Exclusive].Condition, "evict")
	var l logs
	c := clientOf(t, rdb, l.option(), locker.WithTTL(time.Hour), locker.WithoutRenewal())
	var held []*locker.Mutex
	for i := range 20 {
		held = append(held, c.Mutex(fmt.Sprint(i)))
		require.NoError(t, held[i].Lock(ctx))
	}
	eventually(t, "the log warns", func() bool { return l.warnings() > 0 })
	fill := strings.Repeat("x", 10_000)
	for i := range 1000 {
		require.NoError(t, rdb.Set(ctx, fmt.Sprint("fill", i), fill, 0).Err())
	}
	lost := 0
	for _, m := range held {
		if m.Extend(ctx) != nil {
			<-m.Hold().Lost()
			lost++
		}
	}
	assert.Positive(t, lost, "of 20 held locks")
	require.NoError(t, c.Close())
	assert.Equal(t, 1, l.warnings())
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.RedisPersistent(), testserver.RedisConfig("user app on >pw ~* &* +@all -info"))
	rdb := connect(t, s.Addr())
	hidden := clientOf(t, connect(t, s.Addr(), func(o *goredis.Options) { o.Username, o.Password = "app", "pw" }))
	for _, c := range []struct {
		limit, policy, appendonly string
		want                      []string
	}{
		{"0", "allkeys-lru", "yes", nil},
		{"3mb", "noeviction", "yes", nil},
		{"3mb", "allkeys-random", "yes", []string{"maxmemory-policy is allkeys-random"}},
		{"3mb", "volatile-ttl", "no", []string{"maxmemory-policy is volatile-ttl", "appendonly is no"}},
	} {
		for name, value := range map[string]string{"maxmemory": c.limit, "maxmemory-policy": c.policy, "appendonly": c.appendonly} {
			require.NoError(t, rdb.ConfigSet(t.Context(), name, value).Err())
		}
		warnings, err := clientOf(t, rdb).Warnings(t.Context())
		require.NoError(t, err)
		require.Len(t, warnings, len(c.want), "%+v", c)
		for i, want := range c.want {
			assert.Contains(t, warnings[i], want)
		}
		warnings, err = hidden.Warnings(t.Context())
		require.NoError(t, err)
		assert.Empty(t, warnings, "the server hides its settings")
	}
}

// The sentinels wait for longer than holds of the default TTL last.
func TestWarnings_ofSentinels(t *testing.T) {
	t.Parallel()
	for ms, want := range map[string]int{"12000": 0, "12001": 1} {
		s := testserver.Sentinel(t, testserver.RedisPersistent(), testserver.SentinelConfig("sentinel down-after-milliseconds testmaster "+ms))
		warnings, err := openURL(t, sentinelURL(s)).Warnings(t.Context())
		require.NoError(t, err)
		require.Len(t, warnings, want)
		if want > 0 {
			assert.Contains(t, warnings[0], "down-after-milliseconds of the sentinels is "+ms)
		}
	}
}
