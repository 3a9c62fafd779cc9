package redis_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testserver"
)

// What a lock costs at least: the pattern of the Redis documentation, two scripts run by EVALSHA.
const (
	bareTake    = `return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])`
	bareRelease = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`
)

func benchServer(b *testing.B) *goredis.Client {
	b.Helper()
	rdb := connect(b, testserver.Redis(b).Addr())
	loadScripts(b, rdb)
	return rdb
}

func bareScripts(b *testing.B, rdb *goredis.Client) (take, release string) {
	b.Helper()
	take, err := rdb.ScriptLoad(b.Context(), bareTake).Result()
	require.NoError(b, err)
	release, err = rdb.ScriptLoad(b.Context(), bareRelease).Result()
	require.NoError(b, err)
	return take, release
}

// BenchmarkPair is one Lock and one Unlock against two bare EVALSHA, taken in turns so that the ratio
// holds whatever else the machine does.
func BenchmarkPair(b *testing.B) {
	rdb := benchServer(b)
	ctx := b.Context()
	m := clientOf(b, rdb).Mutex("x")
	take, release := bareScripts(b, rdb)
	lockPair := func() error {
		if err := m.Lock(ctx); err != nil {
			return err
		}
		return m.Unlock(ctx)
	}
	barePair := func() error {
		if err := rdb.EvalSha(ctx, take, []string{"y"}, "owner", 30000).Err(); err != nil {
			return err
		}
		return rdb.EvalSha(ctx, release, []string{"y"}, "owner").Err()
	}
	d := driverOf(b, rdb)
	driverPair := func() error {
		l, err := d.Acquire(ctx, driver.Request{Name: "z", TTL: 30 * time.Second})
		if err != nil {
			return err
		}
		return l.Release(ctx)
	}
	for _, c := range []struct {
		name string
		pair func() error
	}{{"lock", lockPair}, {"driver", driverPair}, {"bare", barePair}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := c.pair(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("ratio", func(b *testing.B) {
		var lock, bare time.Duration
		for b.Loop() {
			start := time.Now()
			err1 := lockPair()
			middle := time.Now()
			err2 := barePair()
			if err1 != nil || err2 != nil {
				b.Fatal(err1, err2)
			}
			lock += middle.Sub(start)
			bare += time.Since(middle)
		}
		b.ReportMetric(float64(lock)/float64(bare), "lock/bare")
	})
}

// BenchmarkScriptsAtTheServer reports the server's own microseconds a call, from INFO commandstats.
func BenchmarkScriptsAtTheServer(b *testing.B) {
	rdb := benchServer(b)
	ctx := b.Context()
	d := driverOf(b, rdb)
	take, release := bareScripts(b, rdb)
	const n = 200
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprint("orders/", i)
	}
	leases := make([]driver.Lease, n)
	each := func(f func(i int) error) func() error {
		return func() error {
			for i := range n {
				if err := f(i); err != nil {
					return err
				}
			}
			return nil
		}
	}
	var err error
	acquire := each(func(i int) error {
		leases[i], err = d.Acquire(ctx, driver.Request{Name: names[i], TTL: 30 * time.Second})
		return err
	})
	for _, c := range []struct {
		name, command     string
		prepare, run, end func() error
	}{
		{"acquire", "evalsha", nil, acquire, each(func(i int) error { return leases[i].Release(ctx) })},
		{"release", "evalsha", acquire, each(func(i int) error { return leases[i].Release(ctx) }), nil},
		{
			"extend", "evalsha", acquire, each(func(i int) error { return leases[i].Extend(ctx, 30*time.Second) }),
			each(func(i int) error { return leases[i].Release(ctx) }),
		},
		{
			"bare SET NX PX script", "evalsha", nil,
			each(func(i int) error { return rdb.EvalSha(ctx, take, names[i:i+1], "owner", 30000).Err() }),
			each(func(i int) error { return rdb.Del(ctx, names[i]).Err() }),
		},
		{
			"bare compare-and-delete script", "evalsha",
			each(func(i int) error { return rdb.Set(ctx, names[i], "owner", 30*time.Second).Err() }),
			each(func(i int) error { return rdb.EvalSha(ctx, release, names[i:i+1], "owner").Err() }), nil,
		},
		{
			"plain SET NX PX", "set", nil,
			each(func(i int) error {
				return rdb.SetArgs(ctx, names[i], "owner", goredis.SetArgs{Mode: "NX", TTL: 30 * time.Second}).Err()
			}),
			each(func(i int) error { return rdb.Del(ctx, names[i]).Err() }),
		},
		{
			"plain DEL", "del",
			each(func(i int) error { return rdb.Set(ctx, names[i], "owner", 30*time.Second).Err() }),
			each(func(i int) error { return rdb.Del(ctx, names[i]).Err() }), nil,
		},
	} {
		b.Run(c.name, func(b *testing.B) {
			var usec, calls float64
			for b.Loop() {
				if c.prepare != nil {
					require.NoError(b, c.prepare())
				}
				require.NoError(b, rdb.ConfigResetStat(ctx).Err())
				require.NoError(b, c.run())
				stats := commandStats(b, rdb)[c.command]
				var u, k float64
				_, err := fmt.Sscan(stats["usec"]+" "+stats["calls"], &u, &k)
				require.NoError(b, err)
				usec, calls = usec+u, calls+k
				if c.end != nil {
					require.NoError(b, c.end())
				}
			}
			b.ReportMetric(usec/calls, "server-µs/call")
		})
	}
}

// BenchmarkRenewal is one renewal of 1,000 holds.
func BenchmarkRenewal(b *testing.B) {
	rdb := benchServer(b)
	d := driverOf(b, rdb)
	leases := make([]driver.Lease, 1000)
	for i := range leases {
		leases[i] = take(b, d, fmt.Sprint(i), time.Minute)
	}
	b.ReportAllocs()
	for b.Loop() {
		for _, err := range d.ExtendAll(b.Context(), leases, time.Minute) {
			if err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkParallel is 64 goroutines with a name each, on one Client.
func BenchmarkParallel(b *testing.B) {
	rdb := benchServer(b)
	ctx := b.Context()
	c := clientOf(b, rdb)
	take, release := bareScripts(b, rdb)
	var n atomic.Int64
	b.Run("lock", func(b *testing.B) {
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			m := c.Mutex(fmt.Sprint(n.Add(1)))
			for pb.Next() {
				if err := errors.Join(m.Lock(ctx), m.Unlock(ctx)); err != nil {
					b.Error(err)
					return
				}
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
	})
	b.Run("bare", func(b *testing.B) {
		b.SetParallelism(32)
		b.RunParallel(func(pb *testing.PB) {
			key := []string{fmt.Sprint(n.Add(1))}
			for pb.Next() {
				err := errors.Join(rdb.EvalSha(ctx, take, key, "owner", 30000).Err(), rdb.EvalSha(ctx, release, key, "owner").Err())
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pairs/s")
	})
}
