package testserver

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"
)

func TestRedis_stopIsSilentAndContinueRevives(t *testing.T) {
	onlyInCheck(t)
	s := Redis(t)
	s.Stop()
	conn, err := net.Dial("tcp4", s.Addr())
	if err != nil {
		t.Fatalf("a stopped server's port must accept: %v", err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if reply, err := redisCommand(conn, "PING"); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("a stopped server said %q, %v; want silence", reply, err)
	}
	s.Continue()
	// The second command's answer would follow the first's, which is still to come.
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	reply := make([]byte, len("+PONG\r\n"))
	if _, err := conn.Read(reply); err != nil || string(reply) != "+PONG\r\n" {
		t.Errorf("after Continue the server said %q, %v; want the answer to PING", reply, err)
	}
}

func TestRedis_killEndsAStoppedServer(t *testing.T) {
	onlyInCheck(t)
	s := Redis(t)
	s.Stop()
	s.Kill()
	if accepts(s.Addr()) {
		t.Error("the server still accepts connections")
	}
}

func TestRedis_cleanupLeavesNothing(t *testing.T) {
	r := &recorder{TB: t}
	var s *RedisServer
	r.run(func() { s = Redis(r) })
	if r.skip != "" {
		t.Skip(r.skip)
	}
	if _, err := os.Stat(s.dir); err != nil {
		t.Fatalf("no directory while the server runs: %v", err)
	}
	r.cleanUp()
	// The process was waited for, so that even its entry is gone.
	if err := s.cmd.Process.Signal(os.Interrupt); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("the process can still be signalled: %v", err)
	}
	if accepts(s.Addr()) {
		t.Error("the server still accepts connections")
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its directory is left: %v", err)
	}
}
