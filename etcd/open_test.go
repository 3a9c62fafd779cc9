package etcd_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"net/url"
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
	"github.com/go-locker/locker/etcd"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestOpen_badInputIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, want string }{
		{"etcd://h/x", "prefix"},
		{"etcd://h?tls_ca=/ca.pem", "this is etcd://"},
		{"etcd://h?dial_timeout=x", "dial_timeout"},
		{"etcd://h?dial_timeout=0s", "dial_timeout"},
		{"etcd://h?pool_size=3", "pool_size"},
		{"etcd://h?tls_ca=/ca.pem", "tls_ca goes with etcds://"},
		{"etcd://h?keepalive_time=9s", "10s or more"},
		{"etcd://h?keepalive_time=x", "keepalive_time"},
		{"etcd://h?keepalive_timeout=0s", "keepalive_timeout"},
		{"etcds://h?tls_skip_verify=true&tls_ca=/ca.pem", "exclude each other"},
		{"etcd://alice:s3cret@192.0.2.1?dialtimeout=1s", `"dialtimeout": known are backoff, dial_timeout,`},
		{"etcd://alice:s3cret@192.0.2.1?ttl=0s", "TTL 0s"},
		{"etcd://u@h", "password"},
		{"etcd://:s3cret@h", "a password goes with a user"},
		{"etcds://h?tls_ca=/no/such/ca.pem", "/no/such/ca.pem"},
		{"etcds://h?tls_cert=/c.pem", "tls_key"},
		{"etcd://h?ttl=1500ms", "use 1s or 2s"},
		{"etcd://h?ttl=999ms", "whole seconds: use 1s or more"},
		{"etcd://h?ttl=2562047h47m16.5s", "etcd takes at most 2500000h0m0s"},
		{"etcd://h?ttl=2510000h", "at most"},
	} {
		t.Run(c.url, func(t *testing.T) {
			client, err := locker.Open(t.Context(), c.url)
			if err == nil {
				_ = client.Close()
			}
			require.ErrorContains(t, err, c.want)
			assert.NotContains(t, err.Error(), "s3cret")
			assert.NotRegexp(t, "goes with.* does not know", err, "what is known is not said to be unknown")
			assert.Nil(t, client)
		})
	}
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

func TestTTL_ofCenturies(t *testing.T) {
	t.Parallel()
	s := testserver.SharedEtcd(t)
	m := newClient(t, s.Addr(), locker.WithTTL(2_000_000_000*time.Second)).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	require.NoError(t, m.Extend(t.Context()))
	assert.True(t, m.Hold().Deadline().After(time.Now().AddDate(60, 0, 0)))
	require.NoError(t, m.Unlock(t.Context()))
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
	_, err := root.RoleAdd(t.Context(), "other")
	require.NoError(t, err)
	_, err = root.RoleGrantPermission(t.Context(), "other", "other:", "other;", clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	_, err = root.UserAdd(t.Context(), "mallory", "s3cret")
	require.NoError(t, err)
	_, err = root.UserGrantRole(t.Context(), "mallory", "other")
	require.NoError(t, err)
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
	_, err = root.Delete(t.Context(), kept[0])
	require.NoError(t, err)
	assert.Equal(t, 1, attach())
	require.NoError(t, m.Lock(t.Context()), "on another lease")
	require.NoError(t, m.Unlock(t.Context()))
}

func TestTLS(t *testing.T) {
	t.Parallel()
	s, other := testserver.Etcd(t, testserver.EtcdTLS()), testserver.Etcd(t, testserver.EtcdTLS())
	lock := func(url string, parameters ...string) error {
		q := []string{"ttl=4s"}
		for i := 0; i < len(parameters); i += 2 {
			q = append(q, parameters[i]+"="+parameters[i+1])
		}
		ctx := context.WithoutCancel(t.Context()) // for subtests, too
		c, err := locker.Open(ctx, url+"?"+strings.Join(q, "&"))
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		m := c.Mutex("x")
		if err := m.Lock(ctx); err != nil {
			return err
		}
		return m.Unlock(ctx)
	}
	mine := []string{"tls_cert", s.CertFile, "tls_key", s.KeyFile}
	with := func(more ...string) []string { return append(more, mine...) }
	require.NoError(t, lock(s.URL(), with("tls_ca", s.CAFile)...))
	require.NoError(t, lock(s.URL(), with("tls_ca", s.CAFile, "tls_server_name", "localhost")...))
	require.NoError(t, lock(s.URL(), with("tls_skip_verify", "true")...))
	for name, attempt := range map[string]func() error{
		"the wrong authority": func() error { return lock(s.URL(), with("tls_ca", other.CAFile)...) },
		"another name": func() error {
			return lock(s.URL(), with("tls_ca", s.CAFile, "tls_server_name", "elsewhere.example")...)
		},
		"no certificate": func() error { return lock(s.URL(), "tls_ca", s.CAFile) },
		"another's certificate": func() error {
			return lock(s.URL(), "tls_ca", s.CAFile, "tls_cert", other.CertFile, "tls_key", other.KeyFile)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := attempt()
			require.Error(t, err)
			require.NotErrorIs(t, err, locker.ErrHeld)
		})
	}
	t.Run("files that were replaced", func(t *testing.T) {
		dir := t.TempDir()
		files := testserver.CopyFiles(t, dir, other.CAFile, other.CertFile, other.KeyFile)
		c, err := locker.Open(t.Context(), s.URL()+"?tls_ca="+files[0]+"&tls_cert="+files[1]+"&tls_key="+files[2])
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		testserver.CopyFiles(t, dir, s.CAFile, s.CertFile, s.KeyFile)
		require.NoError(t, c.Mutex("replaced").Do(t.Context(), func(context.Context) error { return nil }))
	})
	require.ErrorContains(t, lock(s.URL(), mine...), x509.UnknownAuthorityError{}.Error(), "the system's authorities")
}

func TestClose_closesWhatOpenMadeAndNothingElse(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t)
	cli := connect(t, s.Addr())
	c, err := etcd.New(cli, locker.WithTTL(5*time.Second))
	require.NoError(t, err)
	require.NoError(t, c.Mutex("x").Lock(t.Context()))
	require.NoError(t, c.Close())
	assert.Empty(t, keys(t, cli, ""), "the application's client is open, and no key is left")
	assert.Empty(t, leases(t, cli), "nor is a session")

	opened := openURL(t, s.URL()+"?"+url.Values{"ttl": {"5s"}}.Encode())
	require.NoError(t, opened.Mutex("x").Lock(t.Context()))
	waiting := async(func() error { return opened.Mutex("x").Lock(t.Context()) })
	eventually(t, "there is a waiter", func() bool { return len(queue(t, cli, "x")) == 2 })
	require.NoError(t, opened.Close())
	require.ErrorIs(t, await(t, waiting), locker.ErrClosed)
	assert.Empty(t, keys(t, cli, ""))
	assert.Empty(t, leases(t, cli))
}
