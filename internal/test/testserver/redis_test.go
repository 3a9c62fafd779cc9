package testserver

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

func wantReply(t *testing.T, s *RedisServer, command, want string) {
	t.Helper()
	if got, err := s.ask(command); err != nil || got != want {
		t.Errorf("%s: got %q, %v; want %q", command, got, err, want)
	}
}

func TestRedis_severalRunAtOnce(t *testing.T) {
	onlyInCheck(t)
	for _, name := range []string{"a", "b"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, two := Redis(t), Redis(t)
			if one.Port() == two.Port() {
				t.Fatalf("both servers have port %d", one.Port())
			}
			wantReply(t, one, "SET k one", "OK")
			wantReply(t, two, "SET k two", "OK")
			wantReply(t, one, "GET k", "one")
			wantReply(t, two, "GET k", "two")
		})
	}
}

func TestRedis_killAndRestartLosesTheData(t *testing.T) {
	onlyInCheck(t)
	s := Redis(t)
	addr := s.Addr()
	wantReply(t, s, "SET k v", "OK")
	s.Kill()
	if _, err := s.ask("PING"); err == nil {
		t.Error("PING was answered after Kill")
	}
	s.Kill() // once more does nothing
	s.Restart()
	if s.Addr() != addr {
		t.Errorf("address is %s after Restart, was %s", s.Addr(), addr)
	}
	wantReply(t, s, "GET k", "")
	s.Restart() // while it runs
	wantReply(t, s, "PING", "PONG")
}

func TestRedis_terminateShutsDownInOrder(t *testing.T) {
	onlyInCheck(t)
	s := Redis(t)
	s.Terminate()
	if log := s.tail(); !strings.Contains(log, "is now ready to exit") {
		t.Errorf("no orderly shutdown in the log:\n%s", log)
	}
	s.Restart()
	wantReply(t, s, "PING", "PONG")
}

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

func TestRedis_tls(t *testing.T) {
	onlyInCheck(t)
	s := Redis(t, RedisTLS())
	if want := "rediss://" + s.Addr(); s.URL() != want {
		t.Errorf("URL is %s, want %s", s.URL(), want)
	}
	wantReply(t, s, "PING", "PONG")

	fromFiles, err := clientConfig(&certificates{ca: s.CAFile, clientCert: s.CertFile, clientKey: s.KeyFile})
	if err != nil {
		t.Fatal(err)
	}
	handshake := func(config *tls.Config) error {
		conn, err := tls.Dial("tcp4", s.Addr(), config)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_, err = redisCommand(conn, "PING") // TLS 1.3 refuses a client after its handshake
		return err
	}
	if err := handshake(fromFiles); err != nil {
		t.Errorf("with the exposed files: %v", err)
	}
	if err := handshake(&tls.Config{}); err == nil {
		t.Error("a client that does not know the authority accepted the server")
	}
	if err := handshake(&tls.Config{RootCAs: fromFiles.RootCAs}); err == nil {
		t.Error("the server accepted a client without a certificate")
	}
	if Redis(t).TLSConfig() != nil {
		t.Error("TLSConfig is not nil without RedisTLS")
	}
}

func TestRedis_aclUsers(t *testing.T) {
	onlyInCheck(t)
	s := Redis(t, RedisConfig("user default off", "user alice on >secret ~app:* +get"))
	conn, err := net.Dial("tcp4", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for _, c := range []struct{ command, want string }{
		{"GET app:k", "-NOAUTH"},
		{"AUTH alice wrong", "-WRONGPASS"},
		{"AUTH alice secret", "OK"},
		{"GET app:k", ""},
		{"GET k", "-NOPERM"},
		{"SET app:k v", "-NOPERM"},
	} {
		if got, err := redisCommand(conn, c.command); err != nil || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: got %q, %v; want %s", c.command, got, err, c.want)
		}
	}
}

func TestRedis_password(t *testing.T) {
	onlyInCheck(t)
	s := Redis(t, RedisArgs("--requirepass", "secret"))
	if got, err := s.ask("GET k"); err != nil || !strings.HasPrefix(got, "-NOAUTH") {
		t.Errorf("without a password: got %q, %v; want -NOAUTH", got, err)
	}
	s.Restart()
}

func TestRedis_args(t *testing.T) {
	onlyInCheck(t)
	s := Redis(t, RedisArgs("--maxmemory", "1kb"))
	if got, err := s.ask("SET k v"); err != nil || !strings.HasPrefix(got, "-OOM") {
		t.Errorf("with no memory to speak of SET says %q, %v; want -OOM", got, err)
	}
}

func TestRedis_replica(t *testing.T) {
	onlyInCheck(t)
	primary := Redis(t)
	wantReply(t, primary, "SET k v", "OK")
	replica := Redis(t, RedisReplicaOf(primary))
	wantReply(t, replica, "GET k", "v")
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
