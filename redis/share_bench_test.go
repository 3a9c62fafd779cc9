package redis_test

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
)

// BenchmarkShare_manyReadersAndAWriter has 1,000 readers in ten clients, each of which reads for 100 ms and then asks again, and a writer that asks once a
// second and writes for 1 ms. An operation is a write.
func BenchmarkShare_manyReadersAndAWriter(b *testing.B) {
	rdb := benchServer(b)
	ctx, cancel := context.WithCancel(b.Context())
	var all sync.WaitGroup
	var reads, failed atomic.Int64
	var longest atomic.Int64
	hold := func(take func(context.Context, driver.Request, func(error)) (driver.Lease, error), dur time.Duration) time.Duration {
		start := time.Now()
		l, err := take(ctx, driver.Request{Name: "locker:x", TTL: 30 * time.Second}, func(error) {})
		waited := time.Since(start)
		if err == nil {
			time.Sleep(dur)
			err = l.Release(context.WithoutCancel(ctx))
		}
		if err != nil && ctx.Err() == nil {
			failed.Add(1)
		}
		return waited
	}
	for range 10 {
		d := driverOf(b, connect(b, rdb.Options().Addr))
		for range 100 {
			all.Go(func() {
				for ctx.Err() == nil {
					longest.Store(max(longest.Load(), int64(hold(d.AcquireSharedQueued, 100*time.Millisecond))))
					reads.Add(1)
				}
			})
		}
	}
	d := driverOf(b, connect(b, rdb.Options().Addr))
	time.Sleep(time.Second)
	resetStats(b, rdb)
	reads.Store(0)
	longest.Store(0)
	var waits []time.Duration
	start, before := time.Now(), serverTime(b, rdb)
	for b.Loop() {
		waits = append(waits, hold(d.AcquireQueued, time.Millisecond))
		time.Sleep(time.Second)
	}
	n, took := float64(reads.Load()+int64(len(waits))), time.Since(start).Seconds()
	scripts, usec := scriptsRun(b, rdb), serverTime(b, rdb)-before
	cancel()
	all.Wait()
	require.Zero(b, failed.Load())
	slices.Sort(waits)
	b.ReportMetric(float64(waits[len(waits)/2].Milliseconds()), "ms/write-wait")
	b.ReportMetric(float64(waits[len(waits)-1].Milliseconds()), "ms/longest-write-wait")
	b.ReportMetric(float64(longest.Load())/1e6, "ms/longest-read-wait")
	b.ReportMetric(n/took, "holds/s")
	b.ReportMetric(float64(scripts)/n, "scripts/hold")
	b.ReportMetric(usec/n, "server-µs/hold")
}

var usedCPU = regexp.MustCompile(`used_cpu_(?:user|sys):(\S+)`)

// serverTime returns the microseconds that the server has used of a processor.
func serverTime(b *testing.B, rdb *goredis.Client) (sum float64) {
	b.Helper()
	for _, found := range usedCPU.FindAllStringSubmatch(rdb.Info(context.Background(), "cpu").Val(), -1) {
		seconds, err := strconv.ParseFloat(found[1], 64)
		require.NoError(b, err)
		sum += 1e6 * seconds
	}
	return sum
}
