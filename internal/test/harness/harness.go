// Package harness is what the Harnesses of the adapters have in common: Lockers of a URL, in this process and in others,
// and what may befall real servers.
package harness

import (
	"context"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/test/child"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// urlEnv is the URL, in the processes that a Harness starts.
const urlEnv = "LOCKER_HARNESS_URL"

// Serve comes first in TestMain: it is [child.Serve], and conformance.Serve for what ForURL returns. Of a backend of ours no trial
// may be in doubt, unless the command line says how many.
func Serve() {
	if err := flag.Set("conformance.doubts", "0"); err != nil {
		panic(err)
	}
	child.Serve()
	conformance.Serve(func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
		return mutexOf(open(t, os.Getenv(urlEnv), ttl, false), name)
	})
}

// ForURL is a Harness without faults of servers. In format, which ends with a query, "%s" stands for the servers at
// addrs; ttl is the Harness's.
func ForURL(ttl time.Duration, format string, addrs []string) conformance.Harness {
	to := func(addrs []string) string { return fmt.Sprintf(format, strings.Join(addrs, ",")) }
	url := to(addrs)
	h := conformance.Harness{
		TTL: ttl,
		New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			return open(t, url, ttl, false).Mutex(name)
		},
		Client: func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			c := open(t, url, ttl, renew)
			return func(name string) locker.Locker { return c.Mutex(name) }
		},
		RW: func(t conformance.TB, name string, ttl time.Duration) conformance.RWLocker {
			return open(t, url, ttl, false).RWMutex(name)
		},
	}
	through := func(t conformance.TB, ttl time.Duration, via func(string) string, renew bool) *locker.Client {
		ways := make([]string, len(addrs))
		for i, addr := range addrs {
			ways[i] = via(addr)
		}
		return open(t, to(ways), ttl, renew)
	}
	h.Faults.Through = func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
		return mutexOf(through(t, ttl, via, false), name)
	}
	h.Faults.ThroughClient = func(t conformance.TB, ttl time.Duration, renew bool, via func(string) string) func(string) locker.Locker {
		c := through(t, ttl, via, renew)
		return func(name string) locker.Locker { return c.Mutex(name) }
	}
	if runtime.GOOS != "windows" { // which stops no processes
		h.Faults.Process = func(conformance.TB) *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), urlEnv+"="+url)
			return cmd
		}
	}
	return h
}

// mutexOf is an RWMutex, if the backend has any, so that the suite's scenarios of shares have faults, too.
func mutexOf(c *locker.Client, name string) locker.Locker {
	if rw := c.RWMutex(name); !errors.Is(rw.Unlock(context.Background()), locker.ErrUnsupported) {
		return rw
	}
	return c.Mutex(name)
}

// open makes a Client on connections of its own. Its url ends with a query.
func open(t conformance.TB, url string, ttl time.Duration, renew bool) *locker.Client {
	c, err := locker.Open(t.Context(), fmt.Sprintf("%s&ttl=%v&renew=%t", url, ttl, renew))
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Dialer is for Faults.Through where clients find out addresses by themselves: of addrs, and no others.
func Dialer(addrs []string, via func(string) string) func(ctx context.Context, network, addr string) (net.Conn, error) {
	ways := map[string]string{}
	for _, addr := range addrs {
		ways[addr] = via(addr)
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		way, ok := ways[addr]
		if !ok {
			return nil, fmt.Errorf("%s is no server of ours", addr)
		}
		var d net.Dialer
		return d.DialContext(ctx, network, way)
	}
}

// lockBy takes a lock of s, and gives it back. files are parameters of the URL.
func lockBy(t *testing.T, scheme string, s *testserver.RedisServer, files map[string]string) error {
	t.Helper()
	q := url.Values{"ttl": {"30s"}} // an attempt may take half of that, and the system's authorities take a while to load
	for name, value := range files {
		q.Set(name, value)
	}
	c, err := locker.Open(t.Context(), scheme+"://"+s.Addr()+"?"+q.Encode())
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	m := c.Mutex("x " + t.Name())
	if err := m.Lock(t.Context()); err != nil {
		return err
	}
	return m.Unlock(t.Context())
}

// RedisTLS tests what it takes to be let in by a server of Redis that wants certificates, under a scheme, plain and an s.
func RedisTLS(t *testing.T, plain string) {
	s, other := testserver.Redis(t, testserver.RedisTLS()), testserver.Redis(t, testserver.RedisTLS())
	const ca, cert, key, name, anybody = "tls_ca", "tls_cert", "tls_key", "tls_server_name", "tls_skip_verify"
	for what, files := range map[string]map[string]string{
		"all that is needed": {ca: s.CAFile, cert: s.CertFile, key: s.KeyFile},
		"its other name":     {ca: s.CAFile, cert: s.CertFile, key: s.KeyFile, name: "localhost"},
		"any issuer":         {anybody: "true", cert: s.CertFile, key: s.KeyFile},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			require.NoError(t, lockBy(t, plain+"s", s, files))
		})
	}
	for what, files := range map[string]map[string]string{
		"the wrong authority":      {ca: other.CAFile, cert: s.CertFile, key: s.KeyFile},
		"the system's authorities": {cert: s.CertFile, key: s.KeyFile},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var unknown x509.UnknownAuthorityError
			require.ErrorAs(t, lockBy(t, plain+"s", s, files), &unknown)
		})
	}
	t.Run("files that were replaced", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		files := testserver.CopyFiles(t, dir, other.CAFile, other.CertFile, other.KeyFile)
		q := url.Values{"ttl": {"30s"}, ca: {files[0]}, cert: {files[1]}, key: {files[2]}}
		c, err := locker.Open(t.Context(), plain+"s://"+s.Addr()+"?"+q.Encode())
		require.NoError(t, err)
		defer func() { assert.NoError(t, c.Close()) }()
		testserver.CopyFiles(t, dir, s.CAFile, s.CertFile, s.KeyFile)
		require.NoError(t, c.Mutex("x "+t.Name()).Do(t.Context(), func(context.Context) error { return nil }))
	})
	t.Run("the wrong name", func(t *testing.T) {
		t.Parallel()
		var wrong x509.HostnameError
		require.ErrorAs(t, lockBy(t, plain+"s", s, map[string]string{
			ca: s.CAFile, cert: s.CertFile, key: s.KeyFile, name: "elsewhere.example",
		}), &wrong)
	})
	for what, files := range map[string]map[string]string{
		"no certificate":        {ca: s.CAFile},
		"another's certificate": {ca: s.CAFile, cert: other.CertFile, key: other.KeyFile},
		"another's key":         {ca: s.CAFile, cert: s.CertFile, key: other.KeyFile},
		"no authority's file":   {ca: s.CertFile, cert: s.CertFile, key: s.KeyFile},
		"no TLS":                nil,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			scheme := plain + "s"
			if files == nil {
				scheme = plain
			}
			err := lockBy(t, scheme, s, files)
			require.Error(t, err)
			require.NotErrorIs(t, err, locker.ErrHeld)
		})
	}
}

// RedisSomeNames tests that a user of Redis who may lock some names gets those, and the refusal for others alone, whatever
// shares the batch. The scheme is one without TLS, and rights are the commands that locking takes.
func RedisSomeNames(t *testing.T, scheme string, rights []string) {
	const password = "s3cr3t-Passw0rd"
	s := testserver.Redis(t, testserver.RedisConfig(
		"user some on >"+password+" ~{locker:mine-* +"+strings.Join(rights, " +")))
	c, err := locker.Open(t.Context(), scheme+"://some:"+password+"@"+s.Addr())
	require.NoError(t, err)
	defer func() { assert.NoError(t, c.Close()) }()
	var everybody sync.WaitGroup
	for i := range 20 {
		everybody.Go(func() {
			mine, other := c.Mutex(fmt.Sprint("mine-", i)), c.Mutex(fmt.Sprint("other-", i))
			for range 5 {
				if err := mine.Lock(t.Context()); !assert.NoError(t, err) {
					return
				}
				assert.NoError(t, mine.Unlock(t.Context()))
				if i%5 == 0 {
					assert.ErrorContains(t, other.TryLock(t.Context()), "NOPERM")
				}
			}
		})
	}
	everybody.Wait()
}

// RedisConnections tests that a Client opened by URL has as many connections as its pool may have, and one for
// subscriptions. The server is slow, so that all are in use.
func RedisConnections(t *testing.T, scheme string) {
	s := testserver.Redis(t)
	c, err := locker.Open(t.Context(), scheme+"://"+s.Addr()+"?pool_size=5&client_name=loaded")
	require.NoError(t, err)
	defer func() { assert.NoError(t, c.Close()) }()
	holder := c.Mutex("x")
	require.NoError(t, holder.Lock(t.Context()))
	waits := testwait.Go(func() error { return c.Mutex("x").Lock(t.Context()) })
	testwait.Patience(time.Minute).Until(t, "it is subscribed", func() bool { return len(s.Do("PUBSUB", "CHANNELS").([]any)) == 1 })
	most := 0
	for range 3 {
		s.Do("CLIENT", "PAUSE", "300", "WRITE")
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * 5 * time.Millisecond)
				m := c.Mutex(fmt.Sprint(i))
				assert.NoError(t, m.Lock(t.Context()))
				assert.NoError(t, m.Unlock(t.Context()))
			})
		}
		done := testwait.Go(func() error { all.Wait(); return nil })
		for len(done) == 0 {
			most = max(most, strings.Count(fmt.Sprint(s.Do("CLIENT", "LIST")), "name=loaded "))
			time.Sleep(5 * time.Millisecond)
		}
	}
	assert.Equal(t, 5+1, most)
	require.NoError(t, holder.Unlock(t.Context()))
	require.NoError(t, <-waits)
}
