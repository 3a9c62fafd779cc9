// Package readers measures many readers and a writer of one name: this library's RWMutex beside the recipe of etcd's client.
package readers

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
	"go.uber.org/zap"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/etcd"
	"github.com/go-locker/locker/internal/test/testserver"
	_ "github.com/go-locker/locker/redis"
	_ "github.com/go-locker/locker/zookeeper"
)

// Each of the readers reads for a while, and then asks again. The writer asks once a second, and writes for a moment.
const (
	readers = 1000
	clients = 10
	reading = 100 * time.Millisecond
	writing = time.Millisecond
)

// take waits for the lock, or for a share, and returns what gives it back.
type take func(ctx context.Context) (release func() error, err error)

// client is that of a library: what a reader and a writer of one name do.
type client struct{ read, write take }

// server is a process whose time on the processors counts.
type server interface{ PID() int }

// cpu returns the time that s has used of the processors, as Linux counts it: in hundredths of a second.
func cpu(b *testing.B, s server) time.Duration {
	b.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID()))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the name of the command may have any characters
	var sum time.Duration
	for _, field := range fields[11:13] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		require.NoError(b, err)
		sum += time.Duration(ticks) * 10 * time.Millisecond
	}
	return sum
}

// BenchmarkReaders has 1,000 readers in ten clients, and a writer. An operation is a write.
func BenchmarkReaders(b *testing.B) {
	b.Run("locker/redis", func(b *testing.B) {
		s := testserver.Redis(b)
		run(b, s, func() client { return ours(b, s.URL()) })
	})
	b.Run("locker/etcd", func(b *testing.B) {
		s := testserver.Etcd(b)
		run(b, s, func() client { return ours(b, s.URL()) })
	})
	b.Run("etcd recipes.RWMutex", func(b *testing.B) {
		s := testserver.Etcd(b)
		run(b, s, func() client { return etcds(b, s.Addr()) })
	})
	b.Run("locker/zookeeper", func(b *testing.B) {
		s := testserver.ZooKeeper(b)
		run(b, s, func() client { return ours(b, s.URL()) })
	})
}

func ours(b *testing.B, url string) client {
	b.Helper()
	c, err := locker.Open(b.Context(), url)
	require.NoError(b, err)
	b.Cleanup(func() { _ = c.Close() })
	m := c.RWMutex("readers")
	of := func(acquire func(context.Context) (*locker.Hold, error)) take {
		return func(ctx context.Context) (func() error, error) {
			h, err := acquire(ctx)
			if err != nil {
				return nil, err
			}
			return func() error { return h.Unlock(context.WithoutCancel(ctx)) }, nil
		}
	}
	return client{of(m.RAcquire), of(m.Acquire)}
}

// etcds is etcd's own recipe. Its shares have no TTL but that of the client's session, and its calls no context.
func etcds(b *testing.B, addr string) client {
	b.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{addr}, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	require.NoError(b, err)
	b.Cleanup(func() { _ = c.Close() })
	s, err := concurrency.NewSession(c)
	require.NoError(b, err)
	return client{
		read: func(context.Context) (func() error, error) {
			m := recipe.NewRWMutex(s, "readers")
			return m.RUnlock, m.RLock()
		},
		write: func(context.Context) (func() error, error) {
			m := recipe.NewRWMutex(s, "readers")
			return m.Unlock, m.Lock()
		},
	}
}

// figures are of one second or so.
type figures struct {
	write       time.Duration // waited
	reads       int64
	longestRead time.Duration // waited
}

func run(b *testing.B, s server, connect func() client) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	var reads, longest, failed atomic.Int64
	hold := func(t take, d time.Duration) time.Duration {
		start := time.Now()
		release, err := t(ctx)
		waited := time.Since(start)
		if err == nil {
			time.Sleep(d)
			err = release()
		}
		if err != nil && ctx.Err() == nil {
			if failed.Add(1) == 1 {
				b.Errorf("after %v: %v", time.Since(start), err)
			}
		}
		return waited
	}
	for range clients {
		c := connect()
		for range readers / clients {
			all.Go(func() {
				for ctx.Err() == nil && failed.Load() == 0 {
					waited := int64(hold(c.read, reading))
					for old := longest.Load(); waited > old && !longest.CompareAndSwap(old, waited); old = longest.Load() {
					}
					reads.Add(1)
				}
			})
		}
	}
	writer := connect()
	measure(b, s, func() figures {
		waited := hold(writer.write, writing)
		return figures{waited, reads.Swap(0), time.Duration(longest.Swap(0))}
	})
	cancel()
	all.Wait()
}

// measure warms up, and reports what the writes bring.
func measure(b *testing.B, s server, write func() figures) {
	b.Helper()
	for range 2 {
		time.Sleep(time.Second)
		write()
	}
	var waits []time.Duration
	var longest time.Duration
	var holds int64
	start, before := time.Now(), cpu(b, s)
	for b.Loop() {
		time.Sleep(time.Second)
		f := write()
		waits = append(waits, f.write)
		holds += f.reads + 1
		longest = max(longest, f.longestRead)
	}
	took, used := time.Since(start), cpu(b, s)-before
	slices.Sort(waits)
	b.ReportMetric(float64(waits[len(waits)/2].Milliseconds()), "ms/write-wait")
	b.ReportMetric(float64(waits[len(waits)-1].Milliseconds()), "ms/longest-write-wait")
	b.ReportMetric(float64(longest.Milliseconds()), "ms/longest-read-wait")
	b.ReportMetric(float64(holds)/took.Seconds(), "holds/s")
	b.ReportMetric(float64(used.Microseconds())/float64(holds), "server-µs/hold")
}
