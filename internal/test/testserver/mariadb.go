package testserver

import (
	"errors"
	"io"
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
	path := lookup(t, server{"mariadbd", "run make setup-nightly, which fetches it"})
	dir := MemoryDir(t)
	s := &MariaDBServer{process: newProcess(t, "mariadb", path, dir)}
	s.isReady = s.greets
	// The database is a directory.
	s.layOut = func() error { return os.MkdirAll(filepath.Join(s.dataDir(), "locker"), 0o700) }
	for _, o := range opts {
		o(s)
	}
	s.begin(func(port int) []string {
		// Without grant tables it needs no database of its own. The kernel's asynchronous I/O is not for everyone.
		args := []string{
			"--no-defaults", "--datadir=" + s.dataDir(), "--tmpdir=" + dir, "--skip-grant-tables", "--skip-name-resolve",
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

// URL returns "mysql://root@127.0.0.1:port/locker".
func (s *MariaDBServer) URL() string { return "mysql://root@" + s.Addr() + "/locker" }

// greets returns nil when the server does, which speaks first.
func (s *MariaDBServer) greets() error {
	const protocol, header = 10, 4
	conn, err := dial(s.port, time.Second)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	var greeting [header + 1]byte
	if _, err := io.ReadFull(conn, greeting[:]); err != nil {
		return err
	}
	if greeting[header] != protocol {
		return errors.New(s.name + " accepts no clients")
	}
	return nil
}
