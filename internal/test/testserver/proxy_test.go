package testserver

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// dialProxy returns a connection whose reads and writes fail after 10 s.
func dialProxy(t *testing.T, p *Proxy) *net.TCPConn {
	t.Helper()
	conn, err := net.Dial("tcp4", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return conn.(*net.TCPConn)
}

func send(t *testing.T, conn net.Conn, command string) {
	t.Helper()
	if _, err := conn.Write([]byte(command + "\r\n")); err != nil {
		t.Fatalf("%s: %v", command, err)
	}
}

func wantAnswer(t *testing.T, conn net.Conn, command, want string) {
	t.Helper()
	if got, err := redisCommand(conn, command); err != nil || got != want {
		t.Errorf("%s: got %q, %v; want %q", command, got, err, want)
	}
}

// wantSilence reads for a moment and leaves conn usable.
func wantSilence(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(30 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 64)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read %d bytes, %v; want silence", n, err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
}

func eventuallyValue(t *testing.T, s *RedisServer, key, want string) {
	t.Helper()
	eventually(t, key+" is "+want, func() bool {
		got, err := s.ask("GET " + key)
		return err == nil && got == want
	})
}

func heldRequests(p *Proxy) func() bool {
	return func() bool { requests, _ := p.Held(); return requests > 0 }
}

func TestProxy_dropReplies(t *testing.T) {
	onlyInCheck(t)
	s := Redis(t)
	p := NewProxy(t, s.Addr())
	conn := dialProxy(t, p)
	wantAnswer(t, conn, "PING", "PONG")
	p.DropReplies(true)
	send(t, conn, "SET k v")
	eventuallyValue(t, s, "k", "v")
	wantSilence(t, conn)

	p.DropReplies(false)
	send(t, conn, "PING") // its answer must not pass for that of SET
	wantSilence(t, conn)
	wantAnswer(t, dialProxy(t, p), "PING", "PONG")
}

func TestProxy_holdReplies(t *testing.T) {
	onlyInCheck(t)
	s := Redis(t)
	p := NewProxy(t, s.Addr())
	conn := dialProxy(t, p)
	p.HoldReplies(true)
	send(t, conn, "INCR k")
	eventuallyValue(t, s, "k", "1")
	wantSilence(t, conn)
	send(t, conn, "INCR k")
	eventuallyValue(t, s, "k", "2")
	eventually(t, "both replies are held", func() bool { _, replies := p.Held(); return replies == 8 })

	p.ReleaseReplies()
	wantAnswer(t, conn, "PING", ":1") // the first of three answers
}

func TestProxy_heldRequestArrivesAfterItsClientClosed(t *testing.T) {
	onlyInCheck(t)
	s := Redis(t)
	p := NewProxy(t, s.Addr())
	conn := dialProxy(t, p)
	p.HoldRequests(true)
	send(t, conn, "SET k late")
	eventually(t, "the request is held", heldRequests(p))
	_ = conn.SetLinger(0) // the rudest way to close
	_ = conn.Close()

	p.HoldRequests(false)
	wantAnswer(t, dialProxy(t, p), "SET k early", "OK") // others overtake it
	wantReply(t, s, "GET k", "early")
	p.ReleaseRequests()
	eventuallyValue(t, s, "k", "late")
}

func TestProxy_heldRequestArrivesAfterSever(t *testing.T) {
	onlyInCheck(t)
	s := Redis(t)
	p := NewProxy(t, s.Addr())
	conn := dialProxy(t, p)
	p.HoldRequests(true)
	send(t, conn, "SET k late")
	eventually(t, "the request is held", heldRequests(p))
	p.Sever()
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reading from a severed connection: %v, want its end", err)
	}
	p.ReleaseRequests()
	eventuallyValue(t, s, "k", "late")
}

func TestProxy_heldRequestsKeepTheirOrder(t *testing.T) {
	onlyInCheck(t)
	p := NewProxy(t, Redis(t).Addr())
	conn := dialProxy(t, p)
	p.HoldRequests(true)
	send(t, conn, "SET k 1")
	eventually(t, "the request is held", heldRequests(p))
	p.HoldRequests(false)
	send(t, conn, "SET k 2") // must not overtake
	wantSilence(t, conn)
	p.ReleaseRequests()
	wantAnswer(t, conn, "GET k", "OK") // the first of three answers
	wantAnswer(t, dialProxy(t, p), "GET k", "2")
}

func TestProxy_resetConns(t *testing.T) {
	onlyInCheck(t)
	s := Redis(t)
	p := NewProxy(t, s.Addr())
	idle, waiting := dialProxy(t, p), dialProxy(t, p)
	wantAnswer(t, idle, "PING", "PONG")
	wantAnswer(t, waiting, "PING", "PONG")
	p.HoldRequests(true)
	send(t, waiting, "SET k v")
	eventually(t, "the request is held", heldRequests(p))
	p.ResetConns()
	for _, conn := range []net.Conn{idle, waiting} {
		if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("reading from a reset connection: %v, want an error", err)
		}
	}
	p.ReleaseRequests()
	wantAnswer(t, dialProxy(t, p), "GET k", "")
}

// What may still be open, held back or stopped when a test ends must not hold up its clean-up.
func TestProxy_cleanupLeavesNothing(t *testing.T) {
	onlyInCheck(t)
	s := Redis(t)
	others := goleak.IgnoreCurrent()
	r := &recorder{TB: t}
	p := NewProxy(r, s.Addr())
	wantAnswer(t, dialProxy(t, p), "PING", "PONG")
	p.HoldRequests(true)
	p.HoldReplies(true)
	send(t, dialProxy(t, p), "PING")
	eventually(t, "the request is held", heldRequests(p))
	s.Stop()
	dialProxy(t, p)
	r.cleanUp()
	if accepts(p.Addr()) {
		t.Error("the proxy still accepts connections")
	}
	if err := goleak.Find(others); err != nil {
		t.Error(err)
	}
}
