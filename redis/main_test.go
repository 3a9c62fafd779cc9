package redis_test

import (
	"context"
	"errors"
	"regexp"
	"strconv"
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
	rdb := goredis.NewClient(o)
	t.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// heedingCtx makes a go-redis client give up a request at its context's deadline.
func heedingCtx(o *goredis.Options) { o.ContextTimeoutEnabled = true }

// clientOf makes a Client over rdb, and closes it before rdb is closed.
func clientOf(t testing.TB, rdb goredis.UniversalClient, opts ...locker.Option) *locker.Client {
	t.Helper()
	c, err := redis.New(rdb, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// newClient makes a Client with connections of its own.
func newClient(t testing.TB, addr string, opts ...locker.Option) *locker.Client {
	t.Helper()
	c, _ := newClientAnd(t, addr, opts...)
	return c
}

// newClientAnd is newClient, and the client that the connections are of.
func newClientAnd(t testing.TB, addr string, opts ...locker.Option) (*locker.Client, *goredis.Client) {
	t.Helper()
	rdb := connect(t, addr, heedingCtx)
	return clientOf(t, rdb, opts...), rdb
}

func driverOf(t testing.TB, rdb goredis.UniversalClient, opts ...redis.DriverOption) claims.Driver {
	t.Helper()
	d, err := redis.NewDriver(rdb, opts...)
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

// warmDriver is warm for a Driver.
func warmDriver(t testing.TB, d driver.Driver) {
	t.Helper()
	require.NoError(t, take(t, d, "warm", time.Minute).Release(t.Context()))
}

// loadScripts has the server know all scripts, as it does after its first minute in service. It goes
// through a Driver of its own: what others know of the server's clock stays as it was.
func loadScripts(t testing.TB, rdb goredis.UniversalClient) {
	t.Helper()
	d, req := driverOf(t, rdb), driver.Request{Name: "loadScripts", TTL: time.Minute}
	taken, err := claims.Take(t.Context(), d, req)
	require.NoError(t, err)
	require.NoError(t, taken.Release(t.Context()))
	l, err := claims.Propose(t.Context(), d, req, 1)
	require.NoError(t, err)
	require.NoError(t, l.Extend(t.Context(), time.Minute))
	require.NoError(t, l.Raise(t.Context(), l.Token()+1))
	require.NoError(t, l.Release(t.Context()))
	require.NoError(t, rdb.Del(t.Context(), "{loadScripts}").Err())
}

// keyOf is the key of a Mutex's name under the default prefix.
func keyOf(name string) string { return "{locker:" + name + "}" }

// isHeldAt reports whether the server counts key as held now.
func isHeldAt(t testing.TB, rdb goredis.UniversalClient, key string) bool {
	t.Helper()
	ctx := context.Background()
	owner, err := rdb.HGet(ctx, key, "owner").Result()
	if !errors.Is(err, goredis.Nil) {
		require.NoError(t, err)
	}
	ms, err := rdb.Do(ctx, "PTTL", key).Int64()
	require.NoError(t, err)
	return owner != "" && ms > keep.Milliseconds()
}

// expire ends the hold at key, as its TTL does.
func expire(t testing.TB, rdb goredis.UniversalClient, key string) {
	t.Helper()
	require.NoError(t, rdb.PExpire(t.Context(), key, keep-time.Millisecond).Err())
}

// commandCalls is INFO commandstats: calls of each command, those in scripts included.
func commandCalls(t testing.TB, rdb goredis.UniversalClient) map[string]int {
	t.Helper()
	info, err := rdb.Info(context.Background(), "commandstats").Result()
	require.NoError(t, err)
	calls := map[string]int{}
	for _, stat := range regexp.MustCompile(`cmdstat_([^:]+):calls=(\d+)`).FindAllStringSubmatch(info, -1) {
		calls[stat[1]], err = strconv.Atoi(stat[2])
		require.NoError(t, err)
	}
	return calls
}

func resetStats(t testing.TB, rdb *goredis.Client) {
	t.Helper()
	require.NoError(t, rdb.ConfigResetStat(t.Context()).Err())
}

// before7 reports whether the server is a Redis 6, which lacks some commands that tests look at it with.
func before7(t testing.TB, rdb *goredis.Client) bool {
	t.Helper()
	info, err := rdb.Info(context.WithoutCancel(t.Context()), "server").Result()
	require.NoError(t, err)
	return strings.Contains(info, "\nredis_version:6.")
}

// behindProxy is a server, a proxy in front of it, and a client of the server itself.
func behindProxy(t testing.TB) (s *testserver.RedisServer, p *testserver.Proxy, direct *goredis.Client) {
	t.Helper()
	s = testserver.Redis(t)
	return s, testserver.NewProxy(t, s.Addr()), connect(t, s.Addr())
}
