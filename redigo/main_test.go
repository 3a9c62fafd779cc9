package redigo_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/redigo"
)

func TestMain(m *testing.M) {
	harness.Serve()
	goleak.VerifyTestMain(testserver.Tests(m))
}

const (
	patient = 20 * time.Second
	keep    = time.Minute // how long the hash outlives the lock
)

var (
	eventually  = testwait.Patience(patient).Until
	await       = testwait.Patience(patient).Result
	async       = testwait.Go
	withTimeout = testwait.Context
)

// newPool makes a pool as an application would, but for what change sets.
func newPool(t testing.TB, addr string, change ...func(*redis.Pool)) *redis.Pool {
	t.Helper()
	p := &redis.Pool{
		MaxIdle: 10,
		DialContext: func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", addr)
		},
	}
	for _, f := range change {
		f(p)
	}
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// ofOne allows a pool a single connection.
func ofOne(p *redis.Pool) { p.MaxActive, p.Wait = 1, true }

// clientOf makes a Client over p, and closes it before p is closed.
func clientOf(t testing.TB, p *redis.Pool, opts ...locker.Option) *locker.Client {
	t.Helper()
	c, err := redigo.New(p, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func openClient(t testing.TB, url string, opts ...locker.Option) *locker.Client {
	t.Helper()
	c, err := locker.Open(t.Context(), url, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func driverOf(t testing.TB, p *redis.Pool, opts ...redigo.DriverOption) claims.Driver {
	t.Helper()
	d, err := redigo.NewDriver(p, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close() })
	return d.(claims.Driver)
}

func take(t testing.TB, d driver.Driver, name string, ttl time.Duration) driver.Lease {
	t.Helper()
	l, err := claims.Take(t.Context(), d, driver.Request{Name: name, TTL: ttl})
	require.NoError(t, err)
	return l
}

// warm has c know the server's clock, for which the first take of a Client costs a round trip.
func warm(t testing.TB, c *locker.Client) {
	t.Helper()
	m := c.Mutex("warm")
	require.NoError(t, m.Lock(t.Context()))
	require.NoError(t, m.Unlock(t.Context()))
}

// loadScripts has the server know all scripts but that of Raise.
func loadScripts(t testing.TB, s *testserver.RedisServer) {
	t.Helper()
	l := take(t, driverOf(t, newPool(t, s.Addr())), "loadScripts", time.Minute)
	require.NoError(t, l.Extend(t.Context(), time.Minute))
	require.NoError(t, l.Release(t.Context()))
}

// ask runs a command on a connection of its own.
func ask(t testing.TB, s *testserver.RedisServer, name string, args ...any) any {
	t.Helper()
	c, err := redis.Dial("tcp", s.Addr(), redis.DialReadTimeout(5*time.Second))
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	reply, err := c.Do(name, args...)
	require.NoError(t, err, "%s %v", name, args)
	return reply
}

// keyOf is the key of a Mutex's name under the default prefix.
func keyOf(name string) string { return "{locker:" + name + "}" }

// isHeld reports whether the server counts the lock called name as held now.
func isHeld(t testing.TB, s *testserver.RedisServer, name string) bool {
	t.Helper()
	owner, _ := redis.String(ask(t, s, "HGET", keyOf(name), "owner"), nil)
	ms, err := redis.Int64(ask(t, s, "PTTL", keyOf(name)), nil)
	require.NoError(t, err)
	return owner != "" && ms > keep.Milliseconds()
}

// countRoundTrips has a pool count what is written to the server in one go.
func countRoundTrips(addr string, roundTrips *atomic.Int64) func(*redis.Pool) {
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, network, addr)
		return countingConn{c, roundTrips}, err
	}
	return func(p *redis.Pool) {
		p.DialContext = func(ctx context.Context) (redis.Conn, error) {
			return redis.DialContext(ctx, "tcp", addr, redis.DialContextFunc(dial))
		}
	}
}

type countingConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c countingConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

const secret = "s3cr3t-Passw0rd"

// The rights that docs/backends/redis.md says a user needs, as a line of configuration has them.
const (
	toLock = " ~{locker:* +eval +evalsha +time +hmget +hget +hset +hdel +pttl +pexpire"
	toWait = toLock + " &{locker:* +subscribe +unsubscribe +ping +publish +pubsub +zadd +zcard +zrange +zrem +zscore +zpopmin"
)
