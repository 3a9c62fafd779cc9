package redlock_test

import (
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
		q.direct = append(q.direct, connect(t, s.Addr()))
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

func connect(t testing.TB, addr string) *goredis.Client {
	t.Helper()
	// Short time-outs: a test waits for every connection to have ended.
	o := &goredis.Options{Addr: addr, DialerRetries: 1, ReadTimeout: 2 * time.Second, ContextTimeoutEnabled: true}
	rdb := goredis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// client makes a Client with connections of its own, and time for the nodes of a busy machine.
func client(t testing.TB, addrs []string) *locker.Client {
	t.Helper()
	var nodes []driver.Driver
	for _, addr := range addrs {
		node, err := redis.NewDriver(connect(t, addr))
		require.NoError(t, err)
		nodes = append(nodes, node)
	}
	d, err := redlock.NewDriver(nodes, redlock.NodeTimeout(2*time.Second))
	require.NoError(t, err)
	c, err := locker.New(d)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}
