package testserver

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// PgBouncerServer is a pooler in transaction mode in front of a Postgres server.
type PgBouncerServer struct {
	*process

	port int
}

// PgBouncer starts one, with that many connections to the server, and returns when it answers.
func PgBouncer(t testing.TB, s *PostgresServer, connections int) *PgBouncerServer {
	t.Helper()
	b := &PgBouncerServer{process: newProcess(t, "pgbouncer", lookup(t, server{"pgbouncer", "run make setup-check, which fetches it"}))}
	if os.Geteuid() == 0 {
		b.dir = MemoryDir(t)
		if err := notAsRoot(b.sys, b.dir); err != nil {
			unavailable(t, err, "run the tests as another user")
		}
	}
	config := filepath.Join(b.dir, "pgbouncer.ini")
	withPort(t, b.name, func(port int) error {
		b.port = port
		text := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%d user=postgres\n[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port=%d\nunix_socket_dir=\n"+
			"auth_type=any\npool_mode=transaction\ndefault_pool_size=%d\nmax_client_conn=500\n", s.port, port, connections) // anybody is the one user of the server
		if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
			return err
		}
		b.args = []string{config}
		return b.start(b.answers)
	})
	return b
}

func (b *PgBouncerServer) answers() error {
	conn, err := net.DialTimeout("tcp", b.Addr(), time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Addr returns the "127.0.0.1:port" for clients.
func (b *PgBouncerServer) Addr() string { return loopback(b.port) }

// URL returns a URL as that of the server.
func (b *PgBouncerServer) URL() string {
	return "postgres://postgres@" + b.Addr() + "/postgres?sslmode=disable"
}
