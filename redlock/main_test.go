package redlock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/redis"
	"github.com/go-locker/locker/redlock"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis prints what the tests break on purpose
	harness.Serve()
	// It ends within a second after its client was closed, which may be longer than goleak waits.
	dialing := goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
	goleak.VerifyTestMain(testserver.Tests(m), dialing)
}

const (
	keep    = time.Minute // how long a lock's hash outlives the lock
	patient = 20 * time.Second
	tick    = 2 * time.Millisecond
)

var eventually = testwait.Patience(patient).Until

// quorum is some servers, and a client of each.
type quorum struct {
	servers []*testserver.RedisServer
	direct  []*goredis.Client
}

func newQuorum(t testing.TB, n int, opts ...testserver.RedisOption) *quorum {
	t.Helper()
	q := &quorum{}
	for range n {
		s := testserver.Redis(t, opts...)
		q.servers = append(q.servers, s)
		q.direct = append(q.direct, connect(t, s.Addr(), heedingCtx))
	}
	return q
}

func (q *quorum) addrs() []string {
	var addrs []string
	for _, s := range q.servers {
		addrs = append(addrs, s.Addr())
	}
	return addrs
}

func heedingCtx(o *goredis.Options) { o.ContextTimeoutEnabled = true }

func connect(t testing.TB, addr string, change ...func(*goredis.Options)) *goredis.Client {
	t.Helper()
	// Short time-outs: a test waits for every connection to have ended.
	o := &goredis.Options{Addr: addr, DialerRetries: 1, ReadTimeout: 2 * time.Second}
	for _, f := range change {
		f(o)
	}
	rdb := goredis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// driverOver makes a Driver whose nodes have connections of their own.
func driverOver(t testing.TB, addrs []string, change func(*goredis.Options), opts ...redlock.DriverOption) driver.Driver {
	t.Helper()
	var nodes []driver.Driver
	for _, addr := range addrs {
		node, err := redis.NewDriver(connect(t, addr, change))
		require.NoError(t, err)
		nodes = append(nodes, node)
	}
	d, err := redlock.NewDriver(nodes, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// client makes a Client with connections of its own.
func client(t testing.TB, addrs []string, opts ...locker.Option) *locker.Client {
	t.Helper()
	c, err := locker.New(driverOver(t, addrs, heedingCtx), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// unhurriedClient is client with the default TTL, and time for the nodes of a busy machine.
func unhurriedClient(t testing.TB, addrs []string, opts ...locker.Option) *locker.Client {
	t.Helper()
	c, err := locker.New(driverOver(t, addrs, heedingCtx, redlock.NodeTimeout(2*time.Second)), opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func key(name string) string { return "{locker:" + name + "}" }

// heldAt says which of the nodes count name as held now. Those that do not answer do not.
func (q *quorum) heldAt(t testing.TB, name string) []bool {
	t.Helper()
	held := make([]bool, len(q.direct))
	for i, rdb := range q.direct {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		owner, err1 := rdb.HGet(ctx, key(name), "owner").Result()
		ms, err2 := rdb.Do(ctx, "PTTL", key(name)).Int64()
		cancel()
		held[i] = err1 == nil && err2 == nil && owner != "" && ms > keep.Milliseconds()
	}
	return held
}

func all(n int, held bool) []bool {
	s := make([]bool, n)
	for i := range s {
		s[i] = held
	}
	return s
}

func (q *quorum) eventuallyFree(t testing.TB, name string, nodes ...int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%s is free at %v", name, nodes), func() bool {
		held := q.heldAt(t, name)
		for _, i := range nodes {
			if held[i] {
				return false
			}
		}
		return true
	})
}
