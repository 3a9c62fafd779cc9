package testserver

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// RedisServer is a redis-server process that keeps its data in memory only.
type RedisServer struct {
	*process

	// With RedisTLS: PEM files of the authority that signed the server's certificate, and of a
	// client certificate that the server accepts. Else empty.
	CAFile, CertFile, KeyFile string

	port      int
	tlsConfig *tls.Config
}

// RedisOption changes how Redis starts its server.
type RedisOption func(*redisOptions)

type redisOptions struct {
	args, config []string
	tls          bool
	primary      *RedisServer
}

// RedisArgs appends command-line arguments, such as "--maxmemory", "2mb".
func RedisArgs(args ...string) RedisOption {
	return func(o *redisOptions) { o.args = append(o.args, args...) }
}

// RedisConfig writes lines into the server's configuration file. ACL users ("user alice on >pw …")
// can only be declared there.
func RedisConfig(lines ...string) RedisOption {
	return func(o *redisOptions) { o.config = append(o.config, lines...) }
}

// RedisTLS has the server speak TLS only, with certificates made for this test, and ask clients for
// theirs.
func RedisTLS() RedisOption {
	return func(o *redisOptions) { o.tls = true }
}

// RedisReplicaOf makes the server a replica of primary. Redis returns once it has synchronised,
// unless it may not be asked that without a password.
func RedisReplicaOf(primary *RedisServer) RedisOption {
	return func(o *redisOptions) { o.primary = primary }
}

// Redis starts a server and returns when it answers. It is killed when the test ends.
func Redis(t testing.TB, opts ...RedisOption) *RedisServer {
	t.Helper()
	var o redisOptions
	for _, opt := range opts {
		opt(&o)
	}
	s := &RedisServer{process: newProcess(t, "redis-server",
		"run make setup, or install Redis 7 or later (Debian: redis-server, Homebrew: redis)")}
	fixed := s.fixedArgs(o)
	withPort(t, "redis-server", func(port int) error {
		s.port = port
		s.args = slices.Concat(fixed, []string{s.portFlag(), strconv.Itoa(port)}, o.args)
		if o.primary != nil {
			return s.start(s.following)
		}
		return s.start(s.answers)
	})
	return s
}

// fixedArgs writes the files that the server needs and returns the arguments that do not depend on
// its port. What users of the package add comes after these, and wins.
func (s *RedisServer) fixedArgs(o redisOptions) []string {
	s.t.Helper()
	var args []string
	if len(o.config) > 0 {
		file := filepath.Join(s.dir, "redis.conf")
		if err := os.WriteFile(file, []byte(strings.Join(o.config, "\n")+"\n"), 0o600); err != nil {
			s.t.Fatalf("testserver: %v", err)
		}
		args = append(args, file)
	}
	args = append(args, "--bind", "127.0.0.1", "--dir", s.dir, "--save", "", "--appendonly", "no",
		// Else a replica's first synchronisation waits five seconds for others to join in.
		"--repl-diskless-sync-delay", "0")
	if o.primary != nil {
		args = append(args, "--replicaof", "127.0.0.1", strconv.Itoa(o.primary.port))
	}
	if o.tls {
		files, err := writeCertificates(s.dir)
		if err != nil {
			s.t.Fatalf("testserver: %v", err)
		}
		s.CAFile, s.CertFile, s.KeyFile = files.ca, files.clientCert, files.clientKey
		s.tlsConfig = files.clientConfig
		args = append(args, "--port", "0", "--tls-ca-cert-file", files.ca,
			"--tls-cert-file", files.serverCert, "--tls-key-file", files.serverKey)
	}
	return args
}

func (s *RedisServer) portFlag() string {
	if s.tlsConfig != nil {
		return "--tls-port"
	}
	return "--port"
}

// Port returns the server's port on 127.0.0.1. It stays the same for all of the server's life.
func (s *RedisServer) Port() int { return s.port }

// Addr returns "127.0.0.1:port".
func (s *RedisServer) Addr() string { return loopback(s.port) }

// URL returns "redis://127.0.0.1:port", or "rediss://…" with RedisTLS.
func (s *RedisServer) URL() string {
	if s.tlsConfig != nil {
		return "rediss://" + s.Addr()
	}
	return "redis://" + s.Addr()
}

// TLSConfig returns what a client needs to be accepted by a server with RedisTLS, else nil.
func (s *RedisServer) TLSConfig() *tls.Config { return s.tlsConfig.Clone() }

// Restart kills the server if it runs and starts it again, on the same port, with the same
// arguments and directory. Data that it was not told to persist is gone. It returns when the server
// answers; a replica may not have synchronised by then.
func (s *RedisServer) Restart() {
	s.t.Helper()
	s.kill()
	if err := s.start(s.answers); err != nil {
		s.t.Fatalf("testserver: redis-server did not start again on port %d: %v", s.port, err)
	}
}

// answers returns nil when the server handles commands, be it by refusing them without a password.
func (s *RedisServer) answers() error {
	reply, err := s.ask("PING")
	if err != nil || reply == "PONG" || denied(reply) {
		return err
	}
	return errors.New(reply) // LOADING, for one
}

// following returns nil when a replica is in step with its primary.
func (s *RedisServer) following() error {
	reply, err := s.ask("INFO replication")
	if err != nil || strings.Contains(reply, "master_link_status:up") || denied(reply) {
		return err
	}
	return errors.New("not synchronised with its primary: " + reply)
}

func denied(reply string) bool {
	return strings.HasPrefix(reply, "-NOAUTH") || strings.HasPrefix(reply, "-NOPERM")
}

// ask sends command on a connection of its own, which takes a second at most.
func (s *RedisServer) ask(command string) (string, error) {
	deadline := time.Now().Add(time.Second)
	conn, err := (&net.Dialer{Deadline: deadline}).Dial("tcp4", s.Addr())
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if s.tlsConfig != nil {
		conn = tls.Client(conn, s.tlsConfig)
	}
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	return redisCommand(conn, command)
}

// redisCommand sends an inline command and returns a string or an error reply, the latter with its
// leading "-". There must be no other reply under way on conn.
func redisCommand(conn net.Conn, command string) (string, error) {
	if _, err := fmt.Fprintf(conn, "%s\r\n", command); err != nil {
		return "", err
	}
	r := bufio.NewReader(conn)
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	line = strings.TrimSpace(line)
	size, isBulk := strings.CutPrefix(line, "$")
	if !isBulk {
		return strings.TrimPrefix(line, "+"), nil
	}
	n, err := strconv.Atoi(size)
	if err != nil || n < 0 { // -1 stands for no value
		return "", err
	}
	bulk := make([]byte, n)
	_, err = io.ReadFull(r, bulk)
	return string(bulk), err
}
