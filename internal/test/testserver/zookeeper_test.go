package testserver

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// zooKeeperClient connects to addrs and has the connection closed before the servers stop.
func zooKeeperClient(t *testing.T, addrs ...string) *zk.Conn {
	t.Helper()
	conn, _, err := zk.Connect(addrs, 2*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	return conn
}

type silent struct{}

func (silent) Printf(string, ...any) {}

func createNode(t *testing.T, conn *zk.Conn, path, data string) {
	t.Helper()
	await(t, path+" is created", func() error {
		_, err := conn.Create(path, []byte(data), 0, zk.WorldACL(zk.PermAll))
		if err != nil && !errors.Is(err, zk.ErrNoServer) { // which nothing was sent to
			t.Fatalf("create %s: %v", path, err)
		}
		return err
	})
}

// wantNode asks until it is served.
func wantNode(t *testing.T, conn *zk.Conn, path, want string) {
	t.Helper()
	await(t, path+" is served", func() error {
		got, _, err := conn.Get(path)
		if errors.Is(err, zk.ErrNoNode) || err == nil && string(got) != want {
			t.Fatalf("%s is %q, %v, want %q", path, got, err, want)
		}
		return err
	})
}

func awaitRole(t *testing.T, s *ZooKeeperServer, want string) {
	t.Helper()
	await(t, s.name+" is "+want, func() error {
		if got := s.Role(); got != want {
			return &roleError{got}
		}
		return nil
	})
}

type roleError struct{ role string }

func (e *roleError) Error() string { return "it is " + e.role }

func TestZooKeeper_dataSurvivesAKillAndNotTheTest(t *testing.T) {
	onlyInCheck(t)
	var data string
	t.Run("server", func(t *testing.T) {
		s := ZooKeeper(t)
		data = s.data
		addr := s.Addr()
		if want := "zookeeper://" + addr; s.URL() != want {
			t.Errorf("URL is %s, want %s", s.URL(), want)
		}
		if role := s.Role(); role != "standalone" {
			t.Errorf("role is %s", role)
		}
		createNode(t, zooKeeperClient(t, addr), "/k", "v")
		s.Kill()
		if accepts(addr) {
			t.Error("the server still accepts connections after Kill")
		}
		s.Restart()
		if s.Addr() != addr {
			t.Errorf("address is %s after Restart, was %s", s.Addr(), addr)
		}
		wantNode(t, zooKeeperClient(t, addr), "/k", "v")
		s.Stop()
		if role := s.Role(); role != "" {
			t.Errorf("a stopped server answered that it is %s", role)
		}
		if !accepts(addr) {
			t.Error("a stopped server's port must accept")
		}
		s.Continue()
		awaitRole(t, s, "standalone")
		s.Terminate()
		s.Restart()
		wantNode(t, zooKeeperClient(t, addr), "/k", "v")
	})
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("after the test %s is still there: %v", data, err)
	}
}

func TestZooKeeper_aPortThatIsTakenIsNoted(t *testing.T) {
	onlyInCheck(t)
	s := ZooKeeper(t)
	other := newZooKeeper(t, 2, zooKeeperOptions{})
	other.port = s.port
	if err := other.configure(nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := other.start(func() error { return os.ErrNotExist }); !isPortTaken(err) {
		t.Errorf("isPortTaken does not know %v", err)
	}
}
