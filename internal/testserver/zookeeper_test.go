package testserver

import (
	"errors"
	"os"
	"slices"
	"strings"
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

// wantNode asks until it is served: a member that has just joined may lose its leader once more.
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
		s.Terminate()
		s.Restart()
		wantNode(t, zooKeeperClient(t, addr), "/k", "v")
	})
	if _, err := os.Stat(data); !os.IsNotExist(err) {
		t.Errorf("after the test %s is still there: %v", data, err)
	}
}

func TestZooKeeper_stopIsSilentAndContinueRevives(t *testing.T) {
	s := ZooKeeper(t)
	s.Stop()
	if role := s.Role(); role != "" {
		t.Errorf("a stopped server answered that it is %s", role)
	}
	if !accepts(s.Addr()) {
		t.Error("a stopped server's port must accept")
	}
	s.Continue()
	awaitRole(t, s, "standalone")
}

func TestZooKeeper_whatIsConfiguredLaterWins(t *testing.T) {
	s := ZooKeeper(t, ZooKeeperConfig("tickTime=70"), ZooKeeperConfig("tickTime=50"),
		ZooKeeperJVM("-Dlocker.test=1", "-Dlocker.test=2"))
	for word, want := range map[string]string{"conf": "\ntickTime=50\n", "mntr": "zk_server_state\tstandalone\n"} {
		if got, err := s.Ask(word); err != nil || !strings.Contains(got, want) {
			t.Errorf("%s: %v, no %q in %s", word, err, want, got)
		}
	}
	if got, err := s.Ask("envi"); err != nil || !strings.Contains(got, "java.version") {
		t.Errorf("envi: %v, %s", err, got)
	}
}

func TestZooKeeper_containersAndTTLs(t *testing.T) {
	conn := zooKeeperClient(t, ZooKeeper(t, ZooKeeperReaping()).Addr())
	// The client's own constant for containers is one that the server does not know.
	if _, err := conn.CreateContainer("/c", nil, 4, zk.WorldACL(zk.PermAll)); err != nil {
		t.Fatal(err)
	}
	createNode(t, conn, "/c/x", "")
	if err := conn.Delete("/c/x", -1); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.CreateTTL("/t", nil, zk.FlagTTL, zk.WorldACL(zk.PermAll), 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	await(t, "container and node are gone", func() error {
		for _, path := range []string{"/c", "/t"} {
			if exists, _, err := conn.Exists(path); exists || err != nil {
				return &os.PathError{Op: "stat", Path: path, Err: os.ErrExist}
			}
		}
		return nil
	})
}

func TestZooKeeper_aPortThatIsTakenIsNoted(t *testing.T) {
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

func TestZooKeeperEnsemble_electsAnotherLeader(t *testing.T) {
	g := ZooKeeperEnsemble(t, 3)
	if want := "zookeeper://" + strings.Join(g.Addrs(), ","); g.URL() != want {
		t.Errorf("URL is %s, want %s", g.URL(), want)
	}
	first := g.Leader()
	if followers := g.Followers(); len(followers) != 2 || slices.Contains(followers, first) {
		t.Errorf("%s leads and %d follow", first.name, len(followers))
	}
	createNode(t, zooKeeperClient(t, first.Addr()), "/k", "v")
	first.Stop()
	second := g.Leader()
	if second == first {
		t.Error("a stopped server is still the leader")
	}
	wantNode(t, zooKeeperClient(t, second.Addr()), "/k", "v")
	first.Continue()
	awaitRole(t, first, "follower")
	g.Leader().Kill()
	third := g.Leader()
	if third == second {
		t.Error("a server that was killed is still the leader")
	}
	g.Restart()
	wantNode(t, zooKeeperClient(t, g.Leader().Addr()), "/k", "v")
}

func TestZooKeeperEnsemble_withoutAMajorityNobodyServes(t *testing.T) {
	g := ZooKeeperEnsemble(t, 3)
	a, b, c := g.servers[0], g.servers[1], g.servers[2]
	a.Kill()
	b.Kill()
	awaitRole(t, c, "")
	a.Restart()
	b.Restart()
	await(t, "the third member is back", c.serving)
}
