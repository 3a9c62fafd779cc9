package certmagic_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	_ "github.com/go-locker/locker/etcd"
	"github.com/go-locker/locker/internal/test/child"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	_ "github.com/go-locker/locker/memory"
	_ "github.com/go-locker/locker/redis"
)

const patience = testwait.Patience(time.Minute)

// long is the TTL of holds that are not to end by themselves, on a busy machine.
const long = 20 * time.Second

func TestMain(m *testing.M) {
	child.Serve()
	goleak.VerifyTestMain(testserver.Tests(m))
}

// backend is where the locks are.
type backend struct {
	name string
	ttl  time.Duration                                // the shortest
	url  func(t *testing.T) string                    // of a server that others use, too
	wipe func(t *testing.T) (url string, wipe func()) // of a server of its own; nil: there is none
}

var backends = []backend{{
	name: "memory", ttl: 500 * time.Millisecond,
	url: func(*testing.T) string { return "mem://" },
}, {
	name: "redis", ttl: time.Second,
	url: func(t *testing.T) string { t.Helper(); return testserver.SharedRedis(t).URL() },
	wipe: func(t *testing.T) (string, func()) {
		t.Helper()
		s := testserver.Redis(t)
		return s.URL(), func() { s.Kill(); s.Restart() }
	},
}, {
	name: "etcd", ttl: 2 * time.Second,
	url: func(t *testing.T) string { t.Helper(); return testserver.SharedEtcd(t).URL() },
	wipe: func(t *testing.T) (string, func()) {
		t.Helper()
		s := testserver.Etcd(t)
		return s.URL(), func() { s.Kill(); s.Wipe(); s.Restart() }
	},
}}

// onEach runs f on each backend.
func onEach(t *testing.T, f func(t *testing.T, b backend)) {
	t.Helper()
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			f(t, b)
		})
	}
}

// open returns a Client as a process of its own has it, under a prefix of the test.
func (b backend) open(t *testing.T, url string, opts ...locker.Option) *locker.Client {
	t.Helper()
	c, err := locker.Open(t.Context(), url, append([]locker.Option{locker.WithTTL(long), locker.WithPrefix(t.Name())}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// losing returns a server, and what has the lock of a Client with opts end behind its back.
func (b backend) losing(t *testing.T) (url string, lose func(), opts []locker.Option) {
	t.Helper()
	if b.wipe != nil {
		url, lose = b.wipe(t)
		return url, lose, nil
	}
	return b.url(t), func() { time.Sleep(2 * b.ttl) }, []locker.Option{locker.WithTTL(b.ttl), locker.WithoutRenewal()}
}

// await returns when what comes before the end of an operation has come.
func await(t *testing.T, what <-chan struct{}, done <-chan error) {
	t.Helper()
	select {
	case <-what:
	case err := <-done:
		require.FailNow(t, "it has ended too early", "%v", err)
	}
}
