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

// A session's time-out is counted by a clock that nobody moves.
func TestZooKeeperClock_sessionsHeedItNot(t *testing.T) {
	onlyInCheck(t)
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
