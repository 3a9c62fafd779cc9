package redis_test

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/redis"
)

// One client alone cannot reach a shard. Its ring then maps the shard's names to another one, where they are free.
func TestRing_withAShardThatOneClientCannotReachTwoHold(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	one, two := testserver.Redis(t), testserver.Redis(t)
	p := testserver.NewProxy(t, one.Addr())
	ring := func(addrs ...string) *goredis.Ring {
		r := goredis.NewRing(&goredis.RingOptions{
			Addrs: map[string]string{"one": addrs[0], "two": addrs[1]}, HeartbeatFrequency: 50 * time.Millisecond, DialerRetries: 1, MaxRetries: -1,
		})
		t.Cleanup(func() { _ = r.Close() })
		return r
	}
	whole, cut := ring(one.Addr(), two.Addr()), ring(p.Addr(), two.Addr())
	first := clientOf(t, whole, locker.WithTTL(time.Minute)).Mutex("x")
	require.NoError(t, first.Lock(ctx))
	if connect(t, two.Addr()).Exists(ctx, keyOf("x")).Val() == 1 { // its shard is the other
		p = testserver.NewProxy(t, two.Addr())
		cut = ring(one.Addr(), p.Addr())
	}
	second := clientOf(t, cut, locker.WithTTL(time.Minute)).Mutex("x")
	require.ErrorIs(t, second.TryLock(ctx), locker.ErrHeld)
	p.Sever()
	eventually(t, "the ring of one client does without the shard", func() bool { return cut.Len() == 1 })
	require.NoError(t, second.TryLock(ctx))
	require.NoError(t, first.Extend(ctx))
	require.NoError(t, second.Extend(ctx), "both hold")

	d := driverOf(t, whole)
	for _, g := range []locker.Guarantee{
		locker.Exclusive, locker.Failover, locker.Fencing, locker.FencingDurable, locker.Ordered, locker.Woken,
	} {
		assert.Equal(t, locker.LevelNo, d.Guarantees()[g].Level, g)
		assert.NotEmpty(t, d.Guarantees()[g].Condition, g)
		_, err := redis.New(whole, locker.Require(g))
		require.ErrorIs(t, err, locker.ErrUnsupported, g)
	}
}
