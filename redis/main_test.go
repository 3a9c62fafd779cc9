package redis_test

import (
	"context"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/redis"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis prints what the tests break on purpose
	harness.Serve()
	const of = "github.com/redis/go-redis/v9."
	known := []goleak.Option{ // closing a client of NewFailoverClusterClient does not end these
		goleak.IgnoreAnyFunction(of + "(*sentinelFailover).listen"),
		goleak.IgnoreAnyFunction(of + "(*channel).initHealthCheck.func1"),
		goleak.IgnoreAnyFunction(of + "(*channel).initMsgChan.func1"),
	}
	goleak.VerifyTestMain(patientTests{testserver.Tests(m), known}, known...)
}

// patientTests waits for what ends by itself: a look at which nodes there are, which go-redis does not end when its client is closed,
// may be dialling a sentinel that is gone, for 15 s.
type patientTests struct {
	goleak.TestingM

	known []goleak.Option
}

func (p patientTests) Run() int {
	code := p.TestingM.Run()
	for deadline := time.Now().Add(patient); goleak.Find(p.known...) != nil && time.Now().Before(deadline); {
	}
	return code
}

const (
	keep    = time.Minute // how long the hash outlives the lock
	patient = 20 * time.Second
)

var (
	eventually  = testwait.Patience(patient).Until
	await       = testwait.Patience(patient).Result
	awaitLong   = testwait.Patience(90 * time.Second).Result // of what has to wait for a failover, or for a TTL
	async       = testwait.Go
	withTimeout = testwait.Context
)

// connect makes a go-redis client with its default options, but for what change sets.
func connect(t testing.TB, addr string, change ...func(*goredis.Options)) *goredis.Client {
	t.Helper()
	o := &goredis.Options{Addr: addr}
	for _, f := range change {
		f(o)
	}
	return testwait.Closed(goredis.NewClient(o), nil)(t)
}

// connectCluster makes a client of a Cluster, with its default options.
func connectCluster(t testing.TB, c *testserver.RedisCluster) *goredis.ClusterClient {
	t.Helper()
	return testwait.Closed(goredis.NewClusterClient(&goredis.ClusterOptions{Addrs: c.Addrs()}), nil)(t)
}

// heedingCtx makes a go-redis client give up a request at its context's deadline.
func heedingCtx(o *goredis.Options) { o.ContextTimeoutEnabled = true }

// clientOf makes a Client over rdb, and closes it before rdb is closed.
func clientOf(t testing.TB, rdb goredis.UniversalClient, opts ...locker.Option) *locker.Client {
	t.Helper()
	return testwait.Closed(redis.New(rdb, opts...))(t)
}

// newClient makes a Client, and the client library's that its connections are of.
func newClient(t testing.TB, addr string, opts ...locker.Option) (*locker.Client, *goredis.Client) {
	t.Helper()
	rdb := connect(t, addr, heedingCtx)
	return clientOf(t, rdb, opts...), rdb
}

func driverOf(t testing.TB, rdb goredis.UniversalClient, opts ...redis.DriverOption) claims.Driver {
	t.Helper()
	return testwait.Closed(redis.NewDriver(rdb, opts...))(t).(claims.Driver)
}

func take(t testing.TB, d driver.Driver, name string, ttl time.Duration) driver.Claim {
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

// keyOf is the key of a Mutex's name under the default prefix.
func keyOf(name string) string { return "{locker:" + name + "}" }

func sentinelURL(g *testserver.SentinelGroup) string {
	return "redis://" + strings.Join(g.Addrs(), ",") + "?master_name=" + g.MasterName()
}

func clusterURL(c *testserver.RedisCluster) string {
	return "redis://" + strings.Join(c.Addrs(), ",") + "?cluster=true"
}

// openURL opens a Client, and closes it when the test ends.
func openURL(t testing.TB, url string, opts ...locker.Option) *locker.Client {
	t.Helper()
	return testwait.Closed(locker.Open(context.WithoutCancel(t.Context()), url, opts...))(t)
}
