package etcd_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestOpen_badInputIsNamed(t *testing.T) {
	t.Parallel()
	harness.RefusesURLs(t, map[string]string{
		"etcd://h/x":                                   "prefix",
		"etcd://h?dial_timeout=x":                      "dial_timeout",
		"etcd://h?dial_timeout=0s":                     "dial_timeout",
		"etcd://h?pool_size=3":                         "pool_size",
		"etcd://h?tls_ca=/ca.pem":                      "tls_ca goes with etcds://",
		"etcd://h?keepalive_time=9s":                   "10s or more",
		"etcd://h?keepalive_time=x":                    "keepalive_time",
		"etcd://h?keepalive_timeout=0s":                "keepalive_timeout",
		"etcd://alice:s3cret@192.0.2.1?dialtimeout=1s": `"dialtimeout": known are backoff, dial_timeout,`,
		"etcd://alice:s3cret@192.0.2.1?ttl=0s":         "TTL 0s",
		"etcd://:s3cret@h":                             "a password goes with a user",
		"etcds://h?tls_ca=/no/such/ca.pem":             "/no/such/ca.pem",
		"etcd://h?ttl=1500ms":                          "use 1s or 2s",
		"etcd://h?ttl=999ms":                           "whole seconds: use 1s or more",
		"etcd://h?ttl=2562047h47m16.5s":                "etcd takes at most 2500000h0m0s",
		"etcd://h?ttl=2510000h":                        "at most",
	})
}

// With a user it does, and ctx ends it.
func TestOpen_withAUserHeedsItsContext(t *testing.T) {
	t.Parallel()
	network := testserver.NewProxy(t, testserver.SharedEtcd(t).Addr())
	network.HoldRequests(true)
	for _, parameter := range []string{"", "?dial_timeout=50ms"} {
		began := time.Now()
		_, err := locker.Open(withTimeout(t, 100*time.Millisecond), "etcd://alice:s3cret@"+network.Addr()+"/"+parameter)
		require.Error(t, err)
		assert.Less(t, time.Since(began), patient/2)
		assert.NotContains(t, err.Error(), "s3cret")
	}
}

func TestTTL_belowTheServersFloorIsUnsupportedAndLeavesNothing(t *testing.T) {
	t.Parallel()
	// The TTL is long enough for a request to be made once, and shorter than what a lease would
	// stay for.
	const ttl, floor = 15 * time.Second, 30 * time.Second
	s := testserver.Etcd(t, testserver.EtcdArgs("--election-timeout=20000", "--heartbeat-interval=2000"))
	direct := connect(t, s.Addr())
	require.Empty(t, leases(t, direct), "there is a connection")
	c := clientOf(t, direct, locker.WithTTL(ttl))
	err := c.Mutex("x").Lock(t.Context())
	require.ErrorIs(t, err, locker.ErrUnsupported)
	require.ErrorContains(t, err, "this etcd grants 30s")
	require.ErrorIs(t, c.Mutex("x").TryLock(t.Context()), locker.ErrUnsupported)
	testwait.Patience(floor/2).Until(t, "no lease is left", func() bool { return len(leases(t, direct)) == 0 })
	m := c.Mutex("x", locker.WithTTL(floor))
	require.NoError(t, m.Lock(t.Context()))
	assert.NoError(t, m.Unlock(t.Context()))
}

// What docs/backends/etcd.md has people type gives a user all rights that it needs, and no others.
func TestAuth(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("etcdctl"); err != nil {
		t.Skip("not installed: etcdctl")
	}
	s := testserver.Etcd(t, testserver.EtcdArgs("--bcrypt-cost=4"))
	page, err := os.ReadFile("../docs/backends/etcd.md")
	require.NoError(t, err)
	lines := regexp.MustCompile("(?m)^    etcdctl .* (role|user) .*$").FindAllString(string(page), -1)
	require.Len(t, lines, 4)
	lines = append(lines, "etcdctl --endpoints h1:2379 user add root:s3cret", "etcdctl --endpoints h1:2379 auth enable")
	out, err := exec.Command("sh", "-ec", strings.ReplaceAll(strings.Join(lines, "\n"), "h1:2379", s.Addr())).CombinedOutput()
	require.NoError(t, err, "%s", out)
	open := func(user, prefix string) (*locker.Client, error) {
		c, err := locker.Open(context.WithoutCancel(t.Context()), fmt.Sprintf("etcd://%s%s?prefix=%s", user, s.Addr(), prefix))
		if err == nil {
			t.Cleanup(func() { _ = c.Close() })
		}
		return c, err
	}
	harness.Rights(t, func() *locker.Client {
		c, err := open("app:s3cret@", "locker")
		require.NoError(t, err)
		return c
	})
	_, err = open("app:wrong@", "locker")
	require.ErrorIs(t, err, rpctypes.ErrAuthFailed)
	assert.NotContains(t, err.Error(), "wrong")
	for user, want := range map[string]error{"app:s3cret@": rpctypes.ErrPermissionDenied, "": rpctypes.ErrUserEmpty} {
		c, err := open(user, "elsewhere")
		require.NoError(t, err)
		err = c.Mutex("x").Lock(t.Context())
		require.ErrorIs(t, err, want)
		require.NotErrorIs(t, err, locker.ErrHeld)
	}
}

// A tenant with rights to other keys alone puts one of its own on each lease that it finds: etcd then
// refuses all that the lease's owner puts there.
func TestAuth_anotherTenantUsesOurLeases(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t, testserver.EtcdAuth("alice", "s3cret"), testserver.EtcdArgs("--bcrypt-cost=4"))
	root := login(t, "root", s.Addr())
	addUser(t, root, "mallory", "other:", clientv3.PermissionType(clientv3.PermReadWrite))
	mallory := login(t, "mallory", s.Addr())
	attach := func() (done int) {
		for _, id := range leases(t, root) { // older versions list them to everybody
			if _, err := mallory.Put(t.Context(), "other:x", "", clientv3.WithLease(id)); err == nil {
				done++
			}
		}
		return done
	}

	m := openURL(t, fmt.Sprintf("etcd://alice:s3cret@%s?ttl=30s", s.Addr()), locker.WithPrefix("locker")).Mutex("x")
	for range 3 {
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
		assert.Zero(t, attach(), "a key of ours is on the lease, also while nothing is held")
	}
	kept := keys(t, root, "locker:")
	require.Len(t, kept, 1)
	_, err := root.Delete(t.Context(), kept[0])
	require.NoError(t, err)
	assert.Equal(t, 1, attach())
	require.NoError(t, m.Lock(t.Context()), "on another lease")
	require.NoError(t, m.Unlock(t.Context()))
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t, testserver.EtcdTLS())
	harness.TLS(t, s.URL()+"?ttl=4s", s.Certificates, testserver.NewCertificates(t))
}

func TestClose_closesWhatOpenMadeAndNothingElse(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t)
	cli := connect(t, s.Addr())
	for _, c := range []*locker.Client{clientOf(t, cli), openURL(t, s.URL())} {
		require.NoError(t, c.Mutex("x").Lock(t.Context()))
		waiting := async(func() error { return c.Mutex("x").Lock(t.Context()) })
		eventually(t, "there is a waiter", func() bool { return len(queue(t, cli, "x")) == 2 })
		require.NoError(t, c.Close())
		require.ErrorIs(t, await(t, waiting), locker.ErrClosed)
		assert.Empty(t, keys(t, cli, ""), "the application's client is open, and no key is left")
		assert.Empty(t, leases(t, cli), "nor is a session")
	}
}
