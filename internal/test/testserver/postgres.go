package testserver

import (
	"bytes"
	"errors"
	"fmt"
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
	s.launch()
	return s
}

// newPostgres has no data yet.
func newPostgres(t testing.TB, opts []PostgresOption) *PostgresServer {
	t.Helper()
	const install = "run make setup, which finds or fetches it"
	initdb, path := lookup(t, server{"initdb", install}), lookup(t, server{"postgres", install})
	dir := MemoryDir(t)
	s := &PostgresServer{process: newProcess(t, "postgres", path, dir)}
	s.isReady, s.layOut = s.ready, s.initialise
	t.Cleanup(s.shutDown) // before the process is killed, whose children might then still write

	s.leaveRoot()
	s.initdb = initdb
	for _, o := range opts {
		o(s)
	}
	return s
}

// launch starts the server on a free port.
func (s *PostgresServer) launch() {
	s.t.Helper()
	s.begin(func(port int) []string {
		args := []string{
			"-D", s.dataDir(), "-c", "listen_addresses=127.0.0.1", "-c", "port=" + strconv.Itoa(port), "-c", "unix_socket_directories=",
			"-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "max_connections=1000",
			"-c", "dynamic_shared_memory_type=mmap", // if it is killed, it leaves nothing outside of its data
		}
		for _, setting := range s.settings {
			args = append(args, "-c", setting)
		}
		return args
	})
}

// initialise makes a database cluster, if there is none.
func (s *PostgresServer) initialise() error {
	if _, err := os.Stat(s.dataDir()); err == nil {
		return nil
	}
	cmd := exec.Command(s.initdb, "-D", s.dataDir(), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
	cmd.Dir, cmd.SysProcAttr = s.dir, s.sys
	runtime.LockOSThread() // the thread is the parent that diesWithUs speaks of
	defer runtime.UnlockOSThread()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	return nil
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

// URL returns "postgres://postgres@127.0.0.1:port/postgres?sslmode=disable".
func (s *PostgresServer) URL() string {
	return "postgres://postgres@" + s.Addr() + "/postgres?sslmode=disable"
}

// Stop freezes the server, those of its processes that have connections too. It needs /proc.
func (s *PostgresServer) Stop() {
	s.t.Helper()
	s.process.Stop() // first: from here on there are no more
	for _, child := range s.children() {
		s.signalChild(child, sigStop)
		s.awaitChild(child, "stopped", isStopped)
	}
}

// Continue undoes Stop.
func (s *PostgresServer) Continue() {
	s.t.Helper()
	for _, child := range s.children() {
		s.signalChild(child, sigCont)
	}
	s.process.Continue()
}

// Kill ends the server as a crash would, and waits until all of it is gone. What was committed is on disk. It does nothing
// if the server is not running.
func (s *PostgresServer) Kill() {
	s.t.Helper()
	if !s.running() {
		return
	}
	s.process.Stop()
	children := s.children()
	s.process.Kill()
	for _, child := range children {
		s.signalChild(child, os.Kill)
	}
	for _, child := range children {
		s.awaitChild(child, "ended", func(int) bool { return false })
	}
}

// useClock lets the server's user read what root has made.
func (s *PostgresServer) useClock() {
	s.t.Helper()
	s.process.useClock()
	for _, name := range []string{s.clockFile, filepath.Join(s.dir, "clock.so")} {
		s.check(os.Chmod(name, 0o644))
	}
}

func (s *PostgresServer) children() []int {
	s.t.Helper()
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", s.cmd.Process.Pid))
	s.check(err)
	var pids []int
	for field := range strings.FieldsSeq(string(list)) {
		if pid, err := strconv.Atoi(field); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// signalChild takes it that a child which cannot be signalled has ended.
func (s *PostgresServer) signalChild(pid int, sig os.Signal) {
	if p, err := os.FindProcess(pid); err == nil {
		_ = p.Signal(sig)
		_ = p.Release()
	}
}

// awaitChild waits until what is so of the child, or it has ended.
func (s *PostgresServer) awaitChild(pid int, what string, is func(pid int) bool) {
	s.t.Helper()
	for deadline := time.Now().Add(goneTimeout); !is(pid); time.Sleep(pollInterval) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || bytes.Contains(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" Z ")) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("testserver: process %d of %s has not %s", pid, s.name, what)
		}
	}
}

// Standby starts a server that follows this one, which is restarted for it, and returns when it answers. Its name for
// synchronous_standby_names is standby. What it has got from there it may not have yet.
func (s *PostgresServer) Standby(opts ...PostgresOption) *PostgresServer {
	s.t.Helper()
	standby := newPostgres(s.t, opts)
	standby.copyOf(s)
	standby.launch()
	return standby
}

// Follow has the server, which must not run, be a standby of another, with the data of that one.
func (s *PostgresServer) Follow(primary *PostgresServer) {
	s.t.Helper()
	s.Wipe()
	s.copyOf(primary)
	s.Restart()
}

// copyOf has the server begin as a standby. Where the primary is stands in no command line, which would win over ALTER SYSTEM.
func (s *PostgresServer) copyOf(primary *PostgresServer) {
	s.t.Helper()
	primary.Kill()
	primary.copyData(s.dataDir())
	primary.Restart()
	follows := fmt.Sprintf("primary_conninfo = 'user=postgres application_name=standby host=127.0.0.1 port=%d'\n", primary.port)
	s.check(os.WriteFile(filepath.Join(s.dataDir(), "standby.signal"), nil, 0o644))
	s.check(os.WriteFile(filepath.Join(s.dataDir(), "postgresql.auto.conf"), []byte(follows), 0o644))
}

// Backup copies what the server knows, which is restarted for it. restore has it know that, and nothing later.
func (s *PostgresServer) Backup() (restore func()) {
	s.t.Helper()
	dir := filepath.Join(s.dir, "backup")
	s.Kill()
	s.copyData(dir)
	s.Restart()
	return func() {
		s.t.Helper()
		s.Kill()
		s.Wipe()
		s.check(os.Rename(dir, s.dataDir()))
		s.Restart()
	}
}

// copyData copies the data of a server that was killed: it is that of a crash, from which a server recovers.
func (s *PostgresServer) copyData(to string) {
	s.t.Helper()
	out, err := exec.Command("cp", "-a", s.dataDir(), to).CombinedOutput()
	check(s.t, "cp: "+string(out), err)
	s.check(os.Remove(filepath.Join(to, "postmaster.pid")))
}

// PgBouncerServer is a pooler in transaction mode in front of a Postgres server.
type PgBouncerServer struct{ *process }

// PgBouncer starts one, with that many connections to the server, and returns when it answers.
func PgBouncer(t testing.TB, s *PostgresServer, connections int) *PgBouncerServer {
	t.Helper()
	path := lookup(t, server{"pgbouncer", "run make setup-nightly, which fetches it"})
	b := &PgBouncerServer{process: newProcess(t, "pgbouncer", path, MemoryDir(t))}
	b.leaveRoot()
	b.isReady = func() error {
		conn, err := dial(b.port, time.Second)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	config := filepath.Join(b.dir, "pgbouncer.ini")
	b.begin(func(port int) []string {
		text := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%d user=postgres\n[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port=%d\nunix_socket_dir=\n"+
			"auth_type=any\npool_mode=transaction\ndefault_pool_size=%d\nmax_client_conn=500\n", s.port, port, connections) // anybody is the one user of the server
		b.check(os.WriteFile(config, []byte(text), 0o644))
		return []string{config}
	})
	return b
}

// URL returns a URL as that of the server.
func (b *PgBouncerServer) URL() string {
	return "postgres://postgres@" + b.Addr() + "/postgres?sslmode=disable"
}
