package redis_test

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/redis"
)

func TestOpen_badInputIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, want string }{
		{"redis://h?pool_size=1&pool_size=2", "pool_size"},
		{"redis://h?poolsize=1", "poolsize"},
		{"rediss://h?tls_skip_verify=true&tls_ca=/ca.pem", "exclude each other"},
		{"rediss://h?tls_cert=/no/such/c.pem&tls_key=/no/such/k.pem", "/no/such/c.pem"},
		{"redis://h1,h2?cluster=true&replicas=1&replica_timeout=2s&read_timeout=1s", "ReadTimeout, 1s"},
		{"redis://h?ttl=-1s", "TTL"},
		{"redis://h?ttl=10500us", "10.5ms"},
	} {
		t.Run(c.url, func(t *testing.T) {
			client, err := locker.Open(t.Context(), c.url)
			if err == nil {
				_ = client.Close()
			}
			require.Error(t, err)
			require.ErrorContains(t, err, c.want)
			assert.Nil(t, client)
		})
	}
}

func TestOpen_noErrorShowsThePassword(t *testing.T) {
	t.Parallel()
	const word = "Tr0ub4dor"
	dead := testserver.Redis(t)
	dead.Kill()
	for _, raw := range []string{
		"redis://u:" + word + "@h/x",
		"redis://u:" + word + "@h?pool_size=0",
		"redis://u:" + word + "@" + dead.Addr() + "?dial_timeout=100ms&ttl=300ms",
		"redis://u:" + word + "@" + dead.Addr() + "?ttl=300ms&cluster=true",
		"redis://u:" + word + "@" + dead.Addr() + "?ttl=300ms&master_name=m&sentinel_password=" + word,
	} {
		c, err := locker.Open(t.Context(), raw)
		if err == nil {
			err = c.Mutex("x").TryLock(t.Context())
			require.NoError(t, c.Close())
		}
		require.Error(t, err, raw)
		assert.NotContains(t, err.Error(), word)
	}
}

func TestOpen_userPasswordAndDatabase(t *testing.T) {
	t.Parallel()
	const password = "p@ss/w:o?r#d%"
	s := testserver.Redis(t, testserver.RedisConfig(
		"user default off", "user admin on nopass ~* +@all", "user app on >"+password+" ~* +@all"))
	c, err := locker.Open(t.Context(), "redis://app:"+url.QueryEscape(password)+"@"+s.Addr()+"/3?ttl=20s&prefix=shop")
	require.NoError(t, err)
	require.NoError(t, c.Mutex("x").Lock(t.Context()))
	admin := connect(t, s.Addr(), func(o *goredis.Options) { o.Username, o.Password, o.DB = "admin", "any", 3 })
	assert.True(t, isHeldAt(t, admin, "{shop:x}"))
	clients := func() int {
		n, err := admin.Do(t.Context(), "CLIENT", "LIST").Text()
		require.NoError(t, err)
		return strings.Count(n, "\n")
	}
	require.Greater(t, clients(), 1)
	require.NoError(t, c.Close())
	eventually(t, "Close has closed the connections that Open made", func() bool { return clients() == 1 })
	assert.False(t, isHeldAt(t, admin, "{shop:x}"), "Close releases")
}

// The directory of a test may be too deep for the path of a socket.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "redis")
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func TestOpen_socketAndClientName(t *testing.T) {
	t.Parallel()
	socket := filepath.Join(socketDir(t), "redis.sock")
	s := testserver.Redis(t, testserver.RedisConfig("unixsocket "+socket, "user app on >"+secret+" ~* &* +@all"))
	c := openURL(t, "redis://app:"+secret+"@/2?client_name=shop-3&socket="+url.QueryEscape(socket))
	waitsAndGets(t, c.Mutex("x"), c.Mutex("x"))
	admin := connect(t, s.Addr(), func(o *goredis.Options) { o.DB = 2 })
	require.NoError(t, c.Mutex("x").Lock(t.Context()))
	assert.True(t, isHeldAt(t, admin, keyOf("x")))
	list, err := admin.Do(t.Context(), "CLIENT", "LIST").Text()
	require.NoError(t, err)
	assert.Contains(t, list, socket)
	for line := range strings.Lines(list) {
		assert.Equal(t, strings.Contains(line, "user=app"), strings.Contains(line, "name=shop-3 "), line)
	}
}

func TestNew_nilClients(t *testing.T) {
	t.Parallel()
	var client *goredis.Client
	var cluster *goredis.ClusterClient
	var ring *goredis.Ring
	for name, rdb := range map[string]goredis.UniversalClient{
		"nil": nil, "*Client": client, "*ClusterClient": cluster, "*Ring": ring,
	} {
		c, err := redis.New(rdb)
		require.Error(t, err, name)
		assert.Nil(t, c, name)
		require.ErrorContains(t, err, "nil redis client")
		d, err := redis.NewDriver(rdb)
		require.Error(t, err, name)
		assert.Nil(t, d, name)
	}
}

func TestNew_leavesTheCallersClientOpen(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	rdb := connect(t, s.Addr())
	c, err := redis.New(rdb)
	require.NoError(t, err)
	require.NoError(t, c.Mutex("x").Lock(t.Context()))
	require.NoError(t, c.Close())
	require.NoError(t, rdb.Ping(t.Context()).Err())
	assert.False(t, isHeldAt(t, rdb, keyOf("x")))
	again, err := redis.New(rdb)
	require.NoError(t, err)
	require.NoError(t, again.Mutex("x").Lock(t.Context()))
	require.NoError(t, again.Close())
}

func TestOpen_connectionsUnderLoadAreThePoolAndOneForSubscriptions(t *testing.T) {
	t.Parallel()
	harness.RedisConnections(t, "redis")
}
