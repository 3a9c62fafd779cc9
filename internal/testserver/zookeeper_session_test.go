package testserver

import (
	"testing"
	"time"

	"github.com/go-zookeeper/zk"
)

// session is a client's, and the node on it is gone when it has ended.
func session(t *testing.T, s *ZooKeeperServer) (conn *zk.Conn, node string) {
	t.Helper()
	conn, events, err := zk.Connect([]string{s.Addr()}, 20*time.Second, zk.WithLogger(silent{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		for range events {
		}
	})
	node, err = conn.Create("/node", nil, zk.FlagEphemeral, zk.WorldACL(zk.PermAll))
	if err != nil {
		t.Fatal(err)
	}
	return conn, node
}

func TestZooKeeper_sessionsEndOneByOne(t *testing.T) {
	g := ZooKeeperEnsemble(t, 3)
	for _, s := range g.Servers() {
		conn, node := session(t, s)
		g.Servers()[0].EndSession(conn.SessionID())
		other, _, err := zk.Connect(g.Addrs(), 20*time.Second, zk.WithLogger(silent{}))
		if err != nil {
			t.Fatal(err)
		}
		_, err = other.Sync(node)
		exists, _, err2 := other.Exists(node)
		other.Close()
		if err != nil || err2 != nil || exists {
			t.Errorf("the node of a session that was ended exists: %t, %v, %v", exists, err, err2)
		}
	}
}

func TestZooKeeper_wipeLeavesNothing(t *testing.T) {
	g := ZooKeeperEnsemble(t, 3)
	_, node := session(t, g.Servers()[0])
	for _, s := range g.Servers() {
		s.Kill()
	}
	for _, s := range g.Servers() {
		s.Wipe()
	}
	g.Restart()
	conn, _ := session(t, g.Servers()[0]) // or there would be such a node already
	if exists, _, err := conn.Exists(node); err != nil || !exists {
		t.Errorf("its own node: %t, %v", exists, err)
	}
}

// A session's time-out is counted by a clock that nobody moves.
func TestZooKeeperClock_sessionsHeedItNot(t *testing.T) {
	if !ShiftsClocks {
		t.Skip("testserver: only on Linux")
	}
	s := ZooKeeper(t, ZooKeeperClock())
	s.ShiftClock(time.Hour)
	conn, node := session(t, s)
	s.ShiftClock(time.Hour)
	exists, stat, err := conn.Exists(node)
	if err != nil || !exists {
		t.Fatalf("the node: %t, %v", exists, err)
	}
	if ahead := time.Until(time.UnixMilli(stat.Ctime)); ahead < 59*time.Minute || ahead > 61*time.Minute {
		t.Errorf("it was made %v ahead of the clock here, want an hour", ahead)
	}
}
