package redisfence_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker/fence/redisfence"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestMain(m *testing.M) {
	logging.Disable() // go-redis prints what the tests break on purpose
	goleak.VerifyTestMain(testserver.Tests(m))
}

const patient = 20 * time.Second

var (
	eventually = testwait.Patience(patient).Until
	await      = testwait.Patience(patient).Result
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

// behindProxy is a server, a proxy in front of it, and a client of each.
func behindProxy(t testing.TB) (p *testserver.Proxy, slow, direct *goredis.Client) {
	t.Helper()
	s := testserver.Redis(t)
	p = testserver.NewProxy(t, s.Addr())
	slow, direct = connect(t, p.Addr()), connect(t, s.Addr())
	for _, rdb := range []*goredis.Client{slow, direct} { // sets up a connection, and has the server know the script
		require.NoError(t, write(t.Context(), rdb, "warm", 1))
	}
	return p, slow, direct
}

// appends leaves a trace of each write, so that history can tell of them.
var appends = redisfence.NewScript("return redis.call('RPUSH', KEYS[1], ARGV[1])")

func write(ctx context.Context, rdb goredis.UniversalClient, key string, token uint64) error {
	_, err := appends.Run(ctx, rdb, redisfence.TokenKey(key), token, []string{key}, strconv.FormatUint(token, 10))
	return err
}

func history(ctx context.Context, rdb goredis.UniversalClient, key string) ([]uint64, error) {
	var all []uint64
	err := rdb.LRange(ctx, key, 0, -1).ScanSlice(&all)
	return all, err
}

func seen(t testing.TB, rdb goredis.UniversalClient, key string) []uint64 {
	t.Helper()
	all, err := history(t.Context(), rdb, key)
	require.NoError(t, err)
	return all
}

// kept is what the token's key of a key holds.
func kept(t testing.TB, rdb goredis.UniversalClient, key string) string {
	t.Helper()
	return rdb.Get(t.Context(), redisfence.TokenKey(key)).Val()
}
