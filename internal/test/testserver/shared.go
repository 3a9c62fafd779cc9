package testserver

import (
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"
)

// Tests returns m, for TestMain of a package whose tests wait for servers most of the time. Run has eight of them run
// side by side, unless -parallel says otherwise, and ends the servers that they shared.
func Tests(m *testing.M) *Main { return &Main{m} }

// Main is what [Tests] returns.
type Main struct{ m *testing.M }

// Run returns the exit code.
func (m *Main) Run() int {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", "8")
	}
	code := m.m.Run()
	sharing.end()
	return code
}

// SharedRedis returns the one server of this test binary that tests have in common, each with a prefix or names of its own. It
// lasts until the last test has ended. Who stops, wipes or configures a server starts another by [Redis].
func SharedRedis(t testing.TB) *RedisServer {
	t.Helper()
	return shared(t, &sharedRedis, func(t testing.TB) *RedisServer { return Redis(t) })
}

// SharedEtcd returns an etcd server that several tests share, as SharedRedis does.
func SharedEtcd(t testing.TB) *EtcdServer {
	t.Helper()
	return shared(t, &sharedEtcd, func(t testing.TB) *EtcdServer { return Etcd(t) })
}

// SharedZooKeeper returns a ZooKeeper server that several tests share, as SharedRedis does.
func SharedZooKeeper(t testing.TB) *ZooKeeperServer {
	t.Helper()
	return shared(t, &sharedZooKeeper, func(t testing.TB) *ZooKeeperServer { return ZooKeeper(t) })
}

var (
	sharing         lasting
	sharedRedis     *RedisServer
	sharedEtcd      *EtcdServer
	sharedZooKeeper *ZooKeeperServer
)

// shared returns *server, which the first test that asks starts.
func shared[S any](t testing.TB, server **S, start func(testing.TB) *S) *S {
	t.Helper()
	sharing.starting.Lock()
	defer sharing.starting.Unlock()
	if *server == nil {
		sharing.TB = t // which fails, or is skipped, if the server cannot be started
		*server = start(&sharing)
		sharing.TB = nil
	}
	return *server
}

// lasting is a TB whose life ends with the test binary.
type lasting struct {
	testing.TB // of the test that starts a server, or nil
	starting   sync.Mutex

	mu       sync.Mutex
	cleanups []func()
}

// Helper does nothing where no test starts a server.
func (l *lasting) Helper() {}

// Fatalf is the test's that starts a server. A server that others use too is not to be stopped or restarted.
func (l *lasting) Fatalf(format string, args ...any) {
	if l.TB == nil {
		panic("a shared server: " + fmt.Sprintf(format, args...))
	}
	l.TB.Fatalf(format, args...)
}

// Errorf is Fatalf: after the last test there is nobody to tell but by a panic.
func (l *lasting) Errorf(format string, args ...any) { l.Fatalf(format, args...) }

// Cleanup has f called after the last test.
func (l *lasting) Cleanup(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cleanups = append(l.cleanups, f)
}

// TempDir returns a directory that is removed after the last test.
func (l *lasting) TempDir() string {
	dir, err := os.MkdirTemp("", "testserver-")
	if err != nil {
		l.Fatalf("testserver: %v", err)
	}
	l.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// end runs the clean-ups, last in, first out.
func (l *lasting) end() {
	for len(l.cleanups) > 0 {
		last := l.cleanups[len(l.cleanups)-1]
		l.cleanups = l.cleanups[:len(l.cleanups)-1]
		last()
	}
}
