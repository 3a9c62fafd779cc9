package all_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/all"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/backends"
	"github.com/go-locker/locker/internal/test/fuzzurl"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestAll_importsEveryBackend(t *testing.T) {
	var schemes []string
	for _, b := range backends.Here() {
		schemes = append(schemes, b.Schemes...)
	}
	assert.ElementsMatch(t, schemes, driver.Schemes(), "what all.go imports, and the list in internal/backends")
}

func Example() {
	fmt.Println(driver.Schemes())
	// Output: [etcd etcds mem redigo redigos redis rediss redlock zookeeper zookeepers]
}

// What a program may print of ours does not show the password that Open was given.
func TestOpen_nothingThatIsMadeShowsThePassword(t *testing.T) {
	for _, raw := range []string{
		"redis://u:%s@192.0.2.1", "redis://u:%[1]s@s1,s2?master_name=m&sentinel_password=%[1]s", "redis://u:%s@n1,n2?cluster=true",
		"redigo://u:%s@192.0.2.1", "redigo://u:%[1]s@s1,s2?master_name=m&sentinel_password=%[1]s",
		"redlock://u:%s@h1,h2,h3", "zookeeper://u:%s@192.0.2.1?ttl=20s",
	} {
		c, err := locker.Open(t.Context(), fmt.Sprintf(raw, fuzzurl.Secret))
		require.NoError(t, err, raw)
		m := c.Mutex("x")
		for _, verb := range []string{"%v", "%+v", "%#v"} {
			for _, v := range []any{c, m, c.Guarantees()} {
				assert.False(t, fuzzurl.Shows(fmt.Sprintf(verb, v)), "%s of a %T of %s", verb, v, raw)
			}
		}
		require.NoError(t, c.Close())
	}
}

func TestMain(m *testing.M) { os.Exit(testserver.Tests(m).Run()) }

// The module postgres has the same test.
func TestOutage_isRiddenOutForHalfATTL(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"redis", "redigo"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			s := testserver.Redis(t)
			harness.Outage(t, scheme+"://"+s.Addr(), s.Kill)
		})
	}
	t.Run("redlock", func(t *testing.T) {
		t.Parallel()
		var addrs []string
		var nodes []*testserver.RedisServer
		for range 3 {
			nodes = append(nodes, testserver.Redis(t))
			addrs = append(addrs, nodes[len(nodes)-1].Addr())
		}
		harness.Outage(t, "redlock://"+strings.Join(addrs, ","), func() { nodes[0].Kill(); nodes[1].Kill() })
	})
	t.Run("etcd", func(t *testing.T) {
		t.Parallel()
		s := testserver.Etcd(t)
		harness.Outage(t, s.URL(), s.Kill)
	})
	t.Run("zookeeper", func(t *testing.T) {
		t.Parallel()
		s := testserver.ZooKeeper(t)
		harness.Outage(t, s.URL(), s.Kill)
	})
}

// A server that reads its data after a start answers each request with an error.
func TestOutage_isAServerThatStarts(t *testing.T) {
	t.Parallel()
	for scheme, servers := range map[string]int{"redis": 1, "redigo": 1, "redlock": 3} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			var s [3]*testserver.RedisServer
			var addrs []string
			for i := range servers {
				s[i] = testserver.Redis(t, testserver.RedisConfig("enable-debug-command local"))
				addrs = append(addrs, s[i].Addr())
			}
			c := testwait.Closed(locker.Open(t.Context(), scheme+"://"+strings.Join(addrs, ","), locker.WithTTL(time.Minute)))(t)

			for i := range servers/2 + 1 {
				load(t, s[i], 2*time.Second)
			}
			require.ErrorContains(t, c.Mutex("x").TryLock(t.Context()), "LOADING", "which waits for nothing")
			require.NoError(t, c.Mutex("x").Lock(t.Context()))
		})
	}
	t.Run("for long", func(t *testing.T) {
		t.Parallel()
		s := testserver.Redis(t, testserver.RedisConfig("enable-debug-command local"))
		harness.Outage(t, s.URL(), func() { load(t, s, time.Minute) })
	})
}

// load has a server read its data for some time. It answers after each of many keys, soon.
func load(t *testing.T, s *testserver.RedisServer, during time.Duration) {
	t.Helper()
	const keys = 10000
	rdb := goredis.NewClient(&goredis.Options{Addr: s.Addr(), MaxRetries: -1, ReadTimeout: -1})
	t.Cleanup(func() { _ = rdb.Close() })
	require.NoError(t, rdb.Do(t.Context(), "debug", "populate", keys, "key", 1024).Err())
	for name, value := range map[string]any{"key-load-delay": (during / keys).Microseconds(), "loading-process-events-interval-bytes": 1024} {
		require.NoError(t, rdb.Do(t.Context(), "config", "set", name, value).Err())
	}
	go func() { _ = rdb.Do(context.WithoutCancel(t.Context()), "debug", "reload").Err() }()
	require.Eventually(t, func() bool {
		err := rdb.Get(t.Context(), "x").Err()
		return err != nil && strings.HasPrefix(err.Error(), "LOADING")
	}, time.Minute, time.Millisecond)
}
