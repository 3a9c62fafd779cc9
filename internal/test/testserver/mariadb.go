package testserver

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// MariaDBServer is a MariaDB process. Its data is gone at the end of the test.
type MariaDBServer struct {
	*process

	settings []string
}

// MariaDBClock makes the clock of a MariaDB server shiftable, as RedisClock does.
func MariaDBClock(s *MariaDBServer) { s.useClock() }

// MariaDBDurable has a MariaDB server lose nothing when it is killed.
func MariaDBDurable(s *MariaDBServer) { MariaDBSettings("innodb-flush-log-at-trx-commit=1")(s) }

// MariaDBSettings sets variables, each a "name=value".
func MariaDBSettings(settings ...string) func(*MariaDBServer) {
	return func(s *MariaDBServer) {
		for _, setting := range settings {
			s.settings = append(s.settings, "--"+setting)
		}
	}
}

// MariaDB starts a server with an empty database, named locker, and returns when it answers. It is killed when the test
// ends. Every user may do everything, without a password.
func MariaDB(t testing.TB, opts ...func(*MariaDBServer)) *MariaDBServer {
	t.Helper()
	path := lookup(t, server{"mariadbd", "run make setup-check, which fetches it"})
	dir := MemoryDir(t) // before the process, which writes into it
	s := &MariaDBServer{process: newProcess(t, "mariadb", path)}
	s.dir, s.isReady = dir, s.greets
	for _, o := range opts {
		o(s)
	}
	data := s.data()
	s.empty()
	s.begin(func(port int) []string {
		// Without grant tables it needs no database of its own. The kernel's asynchronous I/O is not for everyone.
		args := []string{
			"--no-defaults", "--datadir=" + data, "--tmpdir=" + dir, "--skip-grant-tables", "--skip-name-resolve",
			"--bind-address=127.0.0.1", "--port=" + strconv.Itoa(port),
			"--socket=" + filepath.Join(dir, "socket"), "--pid-file=" + filepath.Join(dir, "pid"),
			"--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0",
			"--innodb-use-native-aio=0", "--innodb-lock-wait-timeout=30", "--max-connections=2000",
		}
		if os.Geteuid() == 0 {
			args = append(args, "--user=root") // it refuses that unless told
		}
		return append(args, s.settings...)
	})
	return s
}

func (s *MariaDBServer) data() string { return filepath.Join(s.dir, "data") }

// empty makes the database, which is a directory.
func (s *MariaDBServer) empty() {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Join(s.data(), "locker"), 0o700); err != nil {
		s.t.Fatalf("testserver: %v", err)
	}
}

// Wipe deletes what the server, which was killed, has kept.
func (s *MariaDBServer) Wipe() {
	s.t.Helper()
	s.wipe(s.data())
	s.empty()
}

// URL returns "mysql://root@127.0.0.1:port/locker".
func (s *MariaDBServer) URL() string { return "mysql://root@" + s.Addr() + "/locker" }

// greets returns nil when the server does, which speaks first.
func (s *MariaDBServer) greets() error {
	const protocol, header = 10, 4
	conn, err := net.DialTimeout("tcp", s.Addr(), time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	var greeting [header + 1]byte
	if _, err := io.ReadFull(conn, greeting[:]); err != nil {
		return err
	}
	if greeting[header] != protocol {
		return errors.New(s.name + " accepts no clients")
	}
	return nil
}
