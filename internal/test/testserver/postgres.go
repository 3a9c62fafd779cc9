package testserver

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// PostgresServer is a PostgreSQL process and its children, which have the connections. Its data is gone at the end of the test.
type PostgresServer struct {
	*process

	initdb   string
	port     int
	settings []string
}

// PostgresOption configures a Postgres server.
type PostgresOption func(*PostgresServer)

// PostgresClock makes the clock of a Postgres server shiftable, as RedisClock does.
func PostgresClock() PostgresOption { return (*PostgresServer).useClock }

// PostgresSettings sets parameters, each a "name=value".
func PostgresSettings(settings ...string) PostgresOption {
	return func(s *PostgresServer) { s.settings = append(s.settings, settings...) }
}

// PostgresOnDisk has the server keep its data where they survive the machine, and wait until they are there.
func PostgresOnDisk() PostgresOption {
	return func(s *PostgresServer) {
		s.dir = s.t.TempDir()
		s.settings = append(s.settings, "fsync=on")
	}
}

// Postgres makes a database cluster, starts its server and returns when it answers. It is shut down when the test ends. The user
// postgres needs no password.
func Postgres(t testing.TB, opts ...PostgresOption) *PostgresServer {
	t.Helper()
	s := newPostgres(t, opts)
	s.initialise()
	s.begin()
	return s
}

// newPostgres has no data yet.
func newPostgres(t testing.TB, opts []PostgresOption) *PostgresServer {
	t.Helper()
	const install = "run make setup, which finds or fetches it"
	initdb, path := lookup(t, server{"initdb", install}), lookup(t, server{"postgres", install})
	dir := MemoryDir(t) // before the process, which writes into it
	s := &PostgresServer{process: newProcess(t, "postgres", path)}
	s.dir = dir
	t.Cleanup(s.shutDown) // before the process is killed, whose children might then still write

	if os.Geteuid() == 0 {
		if err := notAsRoot(s.sys, dir); err != nil {
			unavailable(t, err, "run the tests as another user")
		}
	}
	s.initdb = initdb
	for _, o := range opts {
		o(s)
	}
	return s
}

// begin starts the server on a free port.
func (s *PostgresServer) begin() {
	s.t.Helper()
	withPort(s.t, s.name, func(port int) error {
		s.port = port
		s.args = []string{
			"-D", s.data(), "-c", "listen_addresses=127.0.0.1", "-c", "port=" + strconv.Itoa(port), "-c", "unix_socket_directories=",
			"-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "max_connections=1000",
			"-c", "dynamic_shared_memory_type=mmap", // if it is killed, it leaves nothing outside of its data
		}
		for _, setting := range s.settings {
			s.args = append(s.args, "-c", setting)
		}
		return s.start(s.ready)
	})
}

func (s *PostgresServer) data() string { return filepath.Join(s.dir, "data") }

func (s *PostgresServer) initialise() {
	s.t.Helper()
	cmd := exec.Command(s.initdb, "-D", s.data(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	cmd.Dir, cmd.SysProcAttr = s.dir, s.sys
	runtime.LockOSThread() // the thread is the parent that diesWithUs speaks of
	defer runtime.UnlockOSThread()
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("testserver: initdb: %v: %s", err, out)
	}
}

// shutDown ends the server without more ado (SIGQUIT), its children first.
func (s *PostgresServer) shutDown() {
	if !s.responsive() {
		return
	}
	_ = s.cmd.Process.Signal(syscall.SIGQUIT)
	select {
	case <-s.exited:
	case <-time.After(goneTimeout):
	}
}

// ready returns nil when the server reports to be ready.
func (s *PostgresServer) ready() error {
	log, err := os.ReadFile(s.logFile())
	if err == nil && !strings.Contains(string(log), "ready to accept ") {
		err = errors.New("it has not said that it is ready")
	}
	return err
}

// Addr returns the "127.0.0.1:port" for clients.
func (s *PostgresServer) Addr() string { return loopback(s.port) }

// URL returns "postgres://postgres@127.0.0.1:port/postgres?sslmode=disable".
func (s *PostgresServer) URL() string {
	return "postgres://postgres@" + s.Addr() + "/postgres?sslmode=disable"
}
