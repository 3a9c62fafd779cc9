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
	s.Kill()
	s.copyData(standby.data())
	s.Restart()
	// Not on the command line, which would win over ALTER SYSTEM.
	follows := fmt.Sprintf("primary_conninfo = 'user=postgres application_name=standby host=127.0.0.1 port=%d'\n", s.port)
	err := errors.Join(
		os.WriteFile(filepath.Join(standby.data(), "standby.signal"), nil, 0o644),
		os.WriteFile(filepath.Join(standby.data(), "postgresql.auto.conf"), []byte(follows), 0o644),
	)
	if err != nil {
		s.t.Fatalf("testserver: %s: %v", s.name, err)
	}
	standby.begin()
	return standby
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
