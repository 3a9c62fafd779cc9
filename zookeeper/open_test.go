package zookeeper_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/zookeeper"
)

func TestOpen_badInputIsNamed(t *testing.T) {
	t.Parallel()
	harness.RefusesURLs(t, map[string]string{
		"zookeeper://h/a//b":                    `the name ""`,
		"zookeeper://h/a/../b":                  `the name ".."`,
		"zookeeper://h/a%07":                    "does not allow",
		"zookeeper://h?tick=x":                  "tick",
		"zookeeper://h?tick=0s":                 "tick",
		"zookeeper://h?dial_timeout=x":          "dial_timeout",
		"zookeeper://h?acl=x":                   "neither world nor creator",
		"zookeeper://h?acl=creator":             "needs a user",
		"zookeeper://h?pool_size=3":             "pool_size",
		"zookeeper://:s3cret@h":                 "a password goes with a user",
		"zookeeper://a%3Ab:s3cret@h":            "no colon",
		"zookeeper://h?tls_ca=/ca.pem":          "tls_ca goes with zookeepers://",
		"zookeepers://h?tls_ca=/no/such/ca.pem": "/no/such/ca.pem",
		"zookeeper://h?tick=2s&ttl=7s":          "with a tick of 2s use 8s or more",
		"zookeeper://h?ttl=10000500us":          "whole milliseconds: use 10.001s",
		"zookeeper://h?ttl=600h":                "at most",
	})
}

func TestOpen_endsWithItsContext(t *testing.T) {
	t.Parallel()
	network := testserver.NewProxy(t, testserver.SharedZooKeeper(t).Addr())
	network.HoldRequests(true)
	for _, parameters := range []string{"dial_timeout=50ms", ""} {
		began := time.Now()
		c, err := locker.Open(withTimeout(t, 100*time.Millisecond), "zookeeper://"+network.Addr()+"?"+parameters)
		if err == nil {
			err = c.Mutex("x").Lock(withTimeout(t, 100*time.Millisecond))
			require.NoError(t, c.Close())
		}
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Less(t, time.Since(began), patient/2)
	}
}

func TestNewDriver_options(t *testing.T) {
	t.Parallel()
	servers := []string{testserver.SharedZooKeeper(t).Addr()}
	for _, o := range []zookeeper.DriverOption{
		nil, zookeeper.Tick(0), zookeeper.ACL(nil), zookeeper.Root("x"), zookeeper.Root("/a/./b"), zookeeper.Root("/a%/b\x00%"),
		zookeeper.Auth("alice", ""), zookeeper.Auth("a:b", "s3cret"), zookeeper.DialTimeout(-1),
	} {
		_, err := zookeeper.NewDriver(servers, o)
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "s3cret")
	}
	_, err := zookeeper.New(nil)
	require.ErrorContains(t, err, "no servers")
	d, err := zookeeper.NewDriver(servers, zookeeper.Tick(serverTick), zookeeper.Root("/"+space(t)+"/apps/shop/"), zookeeper.Auth("alice", "s3cret"),
		zookeeper.DialTimeout(time.Minute))
	require.NoError(t, err)
	c, err := locker.New(d)
	require.NoError(t, err)
	m := c.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	_, _, err = direct(t, servers...).Get("/" + space(t) + "/apps/shop/locker/x")
	require.ErrorIs(t, err, zk.ErrNoAuth, "alice's alone")
	require.NoError(t, m.Unlock(t.Context()))
	require.NoError(t, c.Close())
}

func TestTTL_thatTheServerDoesNotGrantIsUnsupportedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t, testserver.ZooKeeperConfig("minSessionTimeout=2000", "maxSessionTimeout=5000"))
	t.Run("it is given", func(t *testing.T) {
		c := openURL(t, s.URL(), "ttl=4s")
		for _, ttl := range []time.Duration{time.Second, 11 * time.Second} {
			m := c.Mutex("x", locker.WithTTL(ttl))
			require.ErrorIs(t, m.Lock(t.Context()), locker.ErrUnsupported)
			require.ErrorIs(t, m.TryLock(t.Context()), locker.ErrUnsupported)
		}
		eventually(t, "no session is left", func() bool {
			said, err := s.Ask("cons")
			require.NoError(t, err)
			return !assert.ObjectsAreEqual("", said) && len(said) < 200
		})
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		assert.NoError(t, m.Unlock(t.Context()))
	})
	t.Run("none is given, and Open asks what the server grants", func(t *testing.T) {
		c, err := zookeeper.New([]string{s.Addr()})
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		left := time.Until(m.Hold().Deadline())
		assert.Less(t, left, 5*time.Second)
		require.NoError(t, m.Unlock(t.Context()))
		said, err := s.Ask("cons")
		require.NoError(t, err)
		assert.Contains(t, said, "to=5000")
		assert.NotContains(t, said, "to=30000")
		for _, ttl := range []time.Duration{10 * time.Second, 30 * time.Second} {
			err = c.Mutex("x", locker.WithTTL(ttl)).Lock(t.Context())
			require.ErrorIs(t, err, locker.ErrUnsupported)
			require.ErrorContains(t, err, "this ZooKeeper grants 5s")
		}
	})
}

func TestAuth(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	at := func(user, parameters string, opts ...locker.Option) *locker.Client {
		return openURL(t, "zookeeper://"+user+s.Addr()+"/"+space(t), "ttl=5s"+parameters, opts...)
	}
	alice, bob, nobody := at("alice:s3cret@", ""), at("bob:s3cret@", ""), at("", "")
	m := alice.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	for _, c := range []*locker.Client{bob, nobody, at("alice:wrong@", "")} {
		err := c.Mutex("x").TryLock(t.Context())
		require.ErrorIs(t, err, zk.ErrNoAuth)
		require.NotErrorIs(t, err, locker.ErrHeld)
		assert.NotContains(t, err.Error(), "wrong")
		_, err = c.Inspect(t.Context(), "x")
		require.ErrorIs(t, err, zk.ErrNoAuth)
	}
	require.ErrorIs(t, at("alice:s3cret@", "").Mutex("x").TryLock(t.Context()), locker.ErrHeld)
	require.NoError(t, m.Extend(t.Context()))
	require.NoError(t, m.Unlock(t.Context()))

	open := at("alice:s3cret@", "&acl=world", locker.WithPrefix("open")).Mutex("x")
	eventually(t, "what alice owned is gone", func() bool { return open.Lock(t.Context()) == nil })
	require.ErrorIs(t, at("", "", locker.WithPrefix("open")).Mutex("x").TryLock(t.Context()), locker.ErrHeld)
	require.NoError(t, open.Unlock(t.Context()))
}

// Tenants share a path that was made before the first lock, as the page says. Else it is the first
// one's, and shuts out the others.
func TestAuth_tenantsShareAPath(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	at := func(user, path string) *locker.Client {
		return openURL(t, "zookeeper://"+user+":s3cret@"+s.Addr()+path, "ttl=5s", locker.WithPrefix(user))
	}
	path := "/shared-" + space(t)
	_, err := direct(t, s.Addr()).Create(path, nil, 0, zk.WorldACL(zk.PermCreate|zk.PermRead))
	require.NoError(t, err)
	for _, user := range []string{"alice", "bob"} {
		c := at(user, path)
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		for name, err := range c.List(t.Context(), "") {
			require.NoError(t, err)
			assert.Equal(t, "x", name)
		}
		require.NoError(t, m.Unlock(t.Context()))
	}
	require.NoError(t, at("alice", path+"-first").Mutex("x").TryLock(t.Context()))
	require.ErrorIs(t, at("bob", path+"-first").Mutex("x").TryLock(t.Context()), zk.ErrNoAuth)
}

// Somebody else terminates TLS for the server here, whose own needs more of a Java than the tests
// want.
func TestTLS(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	its, other := testserver.NewCertificates(t), testserver.NewCertificates(t)
	secure := testserver.TLSProxy(t, its, s.Addr())
	harness.TLS(t, "zookeepers://alice:s3cret@"+secure+"/"+space(t)+"?ttl=4s", its, other)
}

// It costs no more than a server that does not answer.
func TestTLS_aHandshakeThatHangs(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { _ = l.Close() }() // never accepts
	c := openURL(t, "zookeepers://"+l.Addr().String(), "ttl=5s")
	err = c.Mutex("x").Lock(withTimeout(t, 100*time.Millisecond))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, locker.ErrHeld)
	err = c.Mutex("x", locker.WithTTL(4*time.Second)).Lock(t.Context())
	require.ErrorContains(t, err, "no ZooKeeper server is connected")
	require.NoError(t, c.Close())
}

func TestClose_endsItsSession(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	look := direct(t, s.Addr())
	opened := openURL(t, s.URL(), "ttl=21s") // as no other test has
	require.NoError(t, opened.Mutex("x").Lock(t.Context()))
	waiting := async(func() error { return opened.Mutex("x").Lock(t.Context()) })
	eventually(t, "there is a waiter", func() bool { return len(queue(t, look, "x")) == 2 })
	require.NoError(t, opened.Close())
	require.ErrorIs(t, await(t, waiting), locker.ErrClosed)
	assert.Empty(t, queue(t, look, "x"))
	said, err := s.Ask("cons")
	require.NoError(t, err)
	assert.NotContains(t, said, "to=21000", "nor is its session")
}
