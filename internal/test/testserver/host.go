package testserver

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/go-locker/locker/internal/tb"
)

// Host stands in for a test in a program that needs servers.
type Host struct{ tb *lasting }

// NewHost returns a Host whose servers run until Close.
func NewHost() Host { return Host{newLasting()} }

// Do runs f with the test that Host stands in for. It returns what ended that test, if anything did: an error of
// Fatalf, or of Skipf where a server's program is missing.
func (h Host) Do(f func(t testing.TB)) error { return h.tb.Run(func() { f(h.tb) }) }

// Close stops the servers and removes their directories.
func (h Host) Close() { h.tb.End() }

// lasting is a TB whose life ends with End. It has the methods that this package calls.
type lasting struct {
	unimplemented
	*tb.Scope

	test testing.TB // that starts a server, or nil
}

// unimplemented has the methods of a TB that this package does not call.
type unimplemented struct{ testing.TB } // nil

func newLasting() *lasting { return &lasting{Scope: tb.New(context.Background(), nil)} }

// Fatalf is the test's that starts a server.
func (l *lasting) Fatalf(format string, args ...any) {
	switch {
	case l.test != nil:
		l.test.Fatalf(format, args...)
	case l == sharing: // a server that others use too is not to be stopped or restarted
		panic(fmt.Sprintf(format, args...))
	}
	l.Scope.Fatalf(format, args...)
}

// Skipf is the test's, too.
func (l *lasting) Skipf(format string, args ...any) {
	if l.test != nil {
		l.test.Skipf(format, args...)
	}
	l.Scope.Fatalf(format, args...)
}

// Errorf prints: what cannot be cleaned up ends no program.
func (*lasting) Errorf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// TempDir returns a directory that End removes.
func (l *lasting) TempDir() string {
	dir, err := os.MkdirTemp("", "testserver-")
	if err != nil {
		l.Fatalf("testserver: %v", err)
	}
	l.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

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
	sharing.End()
	return code
}

// SharedRedis returns the one server of this test binary that tests have in common, each with a prefix or names of its own. It
// lasts until the last test has ended. Who stops, wipes or configures a server starts another by [Redis].
func SharedRedis(t testing.TB) *RedisServer {
	t.Helper()
	return shared(t, Redis)
}

// SharedEtcd returns an etcd server that several tests share, as SharedRedis does.
func SharedEtcd(t testing.TB) *EtcdServer {
	t.Helper()
	return shared(t, Etcd)
}

// SharedZooKeeper returns a ZooKeeper server that several tests share, as SharedRedis does.
func SharedZooKeeper(t testing.TB) *ZooKeeperServer {
	t.Helper()
	return shared(t, ZooKeeper)
}

// SharedPostgres is SharedRedis for PostgreSQL. Tests side by side need databases of their own.
func SharedPostgres(t testing.TB) *PostgresServer {
	t.Helper()
	return shared(t, Postgres)
}

// SharedMariaDB returns a MariaDB server that several tests share, as SharedPostgres does.
func SharedMariaDB(t testing.TB) *MariaDBServer {
	t.Helper()
	return shared(t, MariaDB)
}

var (
	starting      sync.Mutex // guards sharedServers, and sharing.test
	sharing       = newLasting()
	sharedServers = map[any]any{} // by type
)

// shared returns the one server of a kind, which the first test that asks starts.
func shared[S, O any](t testing.TB, start func(testing.TB, ...O) *S) *S {
	t.Helper()
	starting.Lock()
	defer starting.Unlock()
	kind := (*S)(nil)
	if sharedServers[kind] == nil {
		sharing.test = t // which fails, or is skipped, if the server cannot be started
		defer func() { sharing.test = nil }()
		sharedServers[kind] = start(sharing)
	}
	return sharedServers[kind].(*S)
}

// server is a program that tests start, and how to get it.
type server struct{ program, install string }

var (
	redisServer     = server{"redis-server", "run make setup, or install Redis 7 or later (Debian: redis-server, Homebrew: redis)"}
	etcdServer      = server{"etcd", "run make setup, which builds it, or install etcd 3.5 or later"}
	zooKeeperServer = server{"zookeeper-server", "run make setup, which fetches it"}
)

// TellMissing writes to the terminal which servers were missing, and how to get them. `go test` shows nothing of a package
// that passes, skipped tests included, so the message goes past it. It is for one package of all.
func TellMissing() {
	var b strings.Builder
	for _, s := range []server{redisServer, etcdServer, zooKeeperServer} {
		if _, err := find(s.program); err != nil {
			fmt.Fprintf(&b, "  %-17s %s\n", s.program, s.install)
		}
	}
	if b.Len() == 0 {
		return
	}
	out := pastGoTest()
	if out == nil {
		return
	}
	defer func() { _ = out.Close() }()
	_, _ = fmt.Fprintf(out, "Skipped: the tests that need these servers, which are not on the PATH:\n%smake test sets them up, and runs those tests.\n", &b)
}

// pastGoTest opens what `go test` writes its errors to, or the terminal. It returns nil where there is neither, or the
// parent is another program.
func pastGoTest() io.WriteCloser {
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", os.Getppid()))
	if err == nil && string(bytes.TrimSpace(comm)) != "go" {
		return nil
	}
	for _, file := range []string{fmt.Sprintf("/proc/%d/fd/2", os.Getppid()), "/dev/tty"} {
		if f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0); err == nil {
			return f
		}
	}
	return nil
}
