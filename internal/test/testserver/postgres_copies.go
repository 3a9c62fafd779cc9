package testserver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Standby starts a server that follows this one, which is restarted for it, and returns when it answers. Its name for
// synchronous_standby_names is standby. What it has got from there it may not have yet.
func (s *PostgresServer) Standby(opts ...PostgresOption) *PostgresServer {
	s.t.Helper()
	standby := newPostgres(s.t, opts)
	standby.copyOf(s)
	standby.begin()
	return standby
}

// Follow has the server, which must not run, be a standby of another, with the data of that one.
func (s *PostgresServer) Follow(primary *PostgresServer) {
	s.t.Helper()
	s.wipe(s.data())
	if err := os.Remove(s.data()); err != nil {
		s.t.Fatalf("testserver: %s: %v", s.name, err)
	}
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
		s.wipe(s.data())
		err := os.Remove(s.data())
		if err == nil {
			err = os.Rename(dir, s.data())
		}
		if err != nil {
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
