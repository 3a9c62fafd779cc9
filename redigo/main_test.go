package redigo_test

import (
	"context"
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

const patient = 20 * time.Second

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
	return testwait.Closed(redigo.New(p, opts...))(t)
}

func openClient(t testing.TB, url string, opts ...locker.Option) *locker.Client {
	t.Helper()
	return testwait.Closed(locker.Open(t.Context(), url, opts...))(t)
}

func driverOf(t testing.TB, p *redis.Pool, opts ...redigo.DriverOption) claims.Driver {
	t.Helper()
	return testwait.Closed(redigo.NewDriver(p, opts...))(t).(claims.Driver)
}

func take(t testing.TB, d driver.Driver, name string, ttl time.Duration) driver.Claim {
	t.Helper()
	l, err := claims.Take(t.Context(), d, driver.Request{Name: name, TTL: ttl})
	require.NoError(t, err)
	return l
}

// keyOf is the key of a Mutex's name under the default prefix.
func keyOf(name string) string { return "{locker:" + name + "}" }
