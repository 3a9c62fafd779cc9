package redigo_test

import (
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestOpen_badInputIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, want string }{
		{"redigo://h1,h2", "master_name"},
		{"redigo://h?poolsize=1", "poolsize"},
		{"redigo://h?replicas=1&replica_timeout=3s", "read_timeout"},
		{"redigo://h?cluster=true", "known are backoff, client_name, dial_timeout,"},
	} {
		_, err := locker.Open(t.Context(), c.url)
		require.ErrorContains(t, err, c.want, c.url)
	}
}

func TestOpen_noErrorShowsAPassword(t *testing.T) {
	t.Parallel()
	const word = "Tr0ub4dor"
	dead := testserver.Redis(t)
	dead.Kill()
	for _, raw := range []string{
		"redigo://u:" + word + "@h/x",
		"redigo://u:" + word + "@" + dead.Addr() + "?dial_timeout=100ms",
		"redigo://u:" + word + "@" + dead.Addr() + "?dial_timeout=100ms&master_name=m&sentinel_password=" + word,
	} {
		c, err := locker.Open(t.Context(), raw)
		if err == nil {
			err = c.Mutex("x").TryLock(t.Context())
			require.NoError(t, c.Close())
			var dial *net.OpError
			require.ErrorAs(t, err, &dial, raw)
		}
		require.Error(t, err, raw)
		assert.NotContains(t, err.Error(), word)
	}
}

func TestOpen_userPasswordAndDatabase(t *testing.T) {
	t.Parallel()
	const password = "p@ss/w:o?r#d%"
	s := testserver.Redis(t, testserver.RedisConfig("user app on >"+password+" ~* +@all"))
	c := openClient(t, "redigo://app:"+url.QueryEscape(password)+"@"+s.Addr()+"/3?prefix=shop")
	require.NoError(t, c.Mutex("x").Lock(t.Context()))
	keyspace, err := redis.String(ask(t, s, "INFO", "keyspace"), nil)
	require.NoError(t, err)
	assert.Contains(t, keyspace, "db3:keys=2", "the lock and the mark")
	clients := func() int {
		list, err := redis.String(ask(t, s, "CLIENT", "LIST", "TYPE", "normal"), nil)
		require.NoError(t, err)
		return strings.Count(list, "user=app")
	}
	require.Equal(t, 1, clients())
	require.NoError(t, c.Close())
	eventually(t, "Close has closed the connections that Open made", func() bool { return clients() == 0 })

	wrong := openClient(t, "redigo://app:wrong@"+s.Addr())
	err = wrong.Mutex("x").Lock(t.Context())
	var refusal redis.Error
	require.ErrorAs(t, err, &refusal)
	require.ErrorContains(t, err, "WRONGPASS")
	start := time.Now()
	require.NoError(t, wrong.Close())
	assert.Less(t, time.Since(start), 2*time.Second, "nothing was sent, so that there is nothing to clean up")
}

func TestOpen_socketAndClientName(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "redis") // that of a test may be too deep for the path of a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket := filepath.Join(dir, "redis.sock")
	s := testserver.Redis(t, testserver.RedisConfig("unixsocket "+socket))
	raw := "redigo:///2?client_name=shop-3&socket=" + url.QueryEscape(socket)
	a, b := openClient(t, raw).Mutex("x"), openClient(t, raw).Mutex("x")
	require.NoError(t, a.Lock(t.Context()))
	done := async(func() error { return b.Lock(t.Context()) })
	eventually(t, "it is subscribed, by the same name", func() bool {
		list, err := redis.String(ask(t, s, "CLIENT", "LIST", "TYPE", "pubsub"), nil)
		require.NoError(t, err)
		return strings.Contains(list, "name=shop-3 ") && strings.Contains(list, socket)
	})
	require.NoError(t, a.Unlock(t.Context()))
	require.NoError(t, await(t, done))
	keyspace, err := redis.String(ask(t, s, "INFO", "keyspace"), nil)
	require.NoError(t, err)
	assert.Contains(t, keyspace, "db2:keys=2", "the lock and the mark")
	require.NoError(t, b.Unlock(t.Context()))
}

func TestOpen_connectionsUnderLoadAreThePoolAndOneForSubscriptions(t *testing.T) {
	t.Parallel()
	harness.RedisConnections(t, "redigo")
}
