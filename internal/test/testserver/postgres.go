package testserver

import (
	"bytes"
	"errors"
	"fmt"
	"net"
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
	s.initialise()
	s.launch()
	return s
}

// newPostgres has no data yet.
func newPostgres(t testing.TB, opts []PostgresOption) *PostgresServer {
	t.Helper()
	const install = "run make setup, which finds or fetches it"
	initdb, path := lookup(t, server{"initdb", install}), lookup(t, server{"postgres", install})
	dir := MemoryDir(t) // before the process, which writes into it
	s := &PostgresServer{process: newProcess(t, "postgres", path)}
	s.dir, s.isReady = dir, s.ready
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

// launch starts the server on a free port.
func (s *PostgresServer) launch() {
	s.t.Helper()
	s.begin(func(port int) []string {
		args := []string{
			"-D", s.data(), "-c", "listen_addresses=127.0.0.1", "-c", "port=" + strconv.Itoa(port), "-c", "unix_socket_directories=",
			"-c", "fsync=off", "-c", "shared_buffers=16MB", "-c", "max_connections=1000",
			"-c", "dynamic_shared_memory_type=mmap", // if it is killed, it leaves nothing outside of its data
		}
		for _, setting := range s.settings {
			args = append(args, "-c", setting)
		}
		return args
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

// Wipe makes the server, which must not run, forget everything.
func (s *PostgresServer) Wipe() {
	s.t.Helper()
	s.wipeData()
	s.initialise()
}

// wipeData leaves no directory: who makes the next data makes it, as the user whose it has to be.
func (s *PostgresServer) wipeData() {
	s.t.Helper()
	s.wipe(s.data())
	if err := os.Remove(s.data()); err != nil {
		s.t.Fatalf("testserver: %s: %v", s.name, err)
	}
}

// useClock lets the server's user read what root has made.
func (s *PostgresServer) useClock() {
	s.t.Helper()
	s.process.useClock()
	for _, name := range []string{s.clockFile, filepath.Join(s.dir, "clock.so")} {
		if err := os.Chmod(name, 0o644); err != nil {
			s.t.Fatalf("testserver: %s: %v", s.name, err)
		}
	}
}

func (s *PostgresServer) children() []int {
	s.t.Helper()
	list, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatalf("testserver: the processes of %s: %v", s.name, err)
	}
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
	s.wipeData()
	s.copyOf(primary)
	s.Restart()
}

// copyOf has the server begin as a standby. Where the primary is stands in no command line, which would win over ALTER SYSTEM.
func (s *PostgresServer) copyOf(primary *PostgresServer) {
	s.t.Helper()
	primary.Kill()
	primary.copyData(s.data())
	primary.Restart()
	follows := fmt.Sprintf("primary_conninfo = 'user=postgres application_name=standby host=127.0.0.1 port=%d'\n", primary.port)
	err := errors.Join(
		os.WriteFile(filepath.Join(s.data(), "standby.signal"), nil, 0o644),
		os.WriteFile(filepath.Join(s.data(), "postgresql.auto.conf"), []byte(follows), 0o644),
	)
	if err != nil {
		s.t.Fatalf("testserver: %s: %v", s.name, err)
	}
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
		s.wipeData()
		if err := os.Rename(dir, s.data()); err != nil {
			s.t.Fatalf("testserver: %s: %v", s.name, err)
		}
		s.Restart()
	}
}

// copyData copies the data of a server that was killed: it is that of a crash, from which a server recovers.
func (s *PostgresServer) copyData(to string) {
	s.t.Helper()
	out, err := exec.Command("cp", "-a", s.data(), to).CombinedOutput()
	if err == nil {
		err = os.Remove(filepath.Join(to, "postmaster.pid"))
	}
	if err != nil {
		s.t.Fatalf("testserver: copying the data of %s: %v: %s", s.name, err, out)
	}
}

// PgBouncerServer is a pooler in transaction mode in front of a Postgres server.
type PgBouncerServer struct{ *process }

// PgBouncer starts one, with that many connections to the server, and returns when it answers.
func PgBouncer(t testing.TB, s *PostgresServer, connections int) *PgBouncerServer {
	t.Helper()
	b := &PgBouncerServer{process: newProcess(t, "pgbouncer", lookup(t, server{"pgbouncer", "run make setup-check, which fetches it"}))}
	if os.Geteuid() == 0 {
		b.dir = MemoryDir(t)
		if err := notAsRoot(b.sys, b.dir); err != nil {
			unavailable(t, err, "run the tests as another user")
		}
	}
	b.isReady = b.answers
	config := filepath.Join(b.dir, "pgbouncer.ini")
	b.begin(func(port int) []string {
		text := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%d user=postgres\n[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port=%d\nunix_socket_dir=\n"+
			"auth_type=any\npool_mode=transaction\ndefault_pool_size=%d\nmax_client_conn=500\n", s.port, port, connections) // anybody is the one user of the server
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			t.Fatalf("testserver: %v", err)
		}
		return []string{config}
	})
	return b
}

func (b *PgBouncerServer) answers() error {
	conn, err := net.DialTimeout("tcp", b.Addr(), time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// URL returns a URL as that of the server.
func (b *PgBouncerServer) URL() string {
	return "postgres://postgres@" + b.Addr() + "/postgres?sslmode=disable"
}

// Promote makes the server a primary (REPLICAOF NO ONE), with the data that it has received so far.
// Sentinels that were not asked take some ten seconds to object; in a cluster it cannot be done.
func (s *RedisServer) Promote() {
	s.t.Helper()
	s.must("REPLICAOF", "NO", "ONE")
}

// WaitSynced returns when the server, as a replica of primary, has received all that primary had
// written when it was called.
func (s *RedisServer) WaitSynced(primary *RedisServer) {
	s.t.Helper()
	var offset int
	var history string
	await(s.t, fmt.Sprintf("%s is a replica of %s and in step with it", s.Addr(), primary.Addr()), func() error {
		if history == "" {
			theirs, err := primary.replication()
			if err != nil {
				return err
			}
			offset, history = theirs.offset(), theirs["master_replid"]
		}
		ours, err := s.replication()
		switch {
		case err != nil:
			return err
		case ours["master_port"] != strconv.Itoa(primary.port), ours["master_link_status"] != "up":
			return fmt.Errorf("role %s, of port %q, link %q",
				ours["role"], ours["master_port"], ours["master_link_status"])
		case ours["master_replid"] != history:
			// Of another history than at the start: has primary begun a new one since?
			history = ""
			return errors.New("it has other data")
		case ours.offset() < offset:
			return fmt.Errorf("it is at offset %d, not yet at %d", ours.offset(), offset)
		}
		return nil
	})
}

// Detach cuts a replica off from its primary's data for good, or until Reattach: nothing that is
// written after Detach has returned gets here. The server still is a replica and lets itself be
// promoted. Unlike with Stop no data waits in the connection to be read later.
func (s *RedisServer) Detach() {
	s.t.Helper()
	s.must("CONFIG", "SET", "masterauth", "wrong")
	s.must("CLIENT", "KILL", "TYPE", "master")
}

// Reattach undoes Detach. The server tries it within a second: see WaitSynced.
func (s *RedisServer) Reattach() {
	s.t.Helper()
	s.must("CONFIG", "SET", "masterauth", operator)
}

// info has the fields of an INFO or CLUSTER INFO reply.
type info map[string]string

func (s *RedisServer) replication() (info, error) { return s.info("INFO", "replication") }

func (s *RedisServer) info(command ...string) (info, error) {
	text, err := s.doText(command...)
	if err != nil {
		return nil, err
	}
	fields := make(info)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields, nil
}

func (i info) offset() int {
	offset, err := strconv.Atoi(i["master_repl_offset"])
	if err != nil {
		return -1
	}
	return offset
}
