package postgres_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/sql/postgres"
)

// An application that uses all connections of the pool for longer than a TTL, on a server that takes
// no other, loses no hold, and can unlock.
func TestPool_whoseConnectionsAreInUse(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t, testserver.PostgresSettings("max_connections=8", "superuser_reserved_connections=0"))
	pool, _ := poolOf(t, s.URL())
	const ttl = 3 * time.Second
	c, err := postgres.New(pool, locker.WithTTL(ttl))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	ms := held(t, c, 10)
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		t.Cleanup(conn.Release)
	}
	for err = error(nil); err == nil; {
		var other *pgx.Conn
		if other, err = pgx.Connect(t.Context(), s.URL()); err == nil {
			t.Cleanup(func() { _ = other.Close(context.Background()) })
		}
	}
	require.ErrorContains(t, err, "53300")
	stillHeld(t, ttl, ms...)
	unlock(t, ms...)
}

// After a failover behind one address, connections of before lead to a server that takes no writes.
// They are given up when one is found out, and the holds go on. Here the server is one: sessions of
// before take no writes, as after a demotion.
func TestFailover_behindOneAddress(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	const ttl = 6 * time.Second
	c := openURL(t, s.URL(), locker.WithTTL(ttl))
	ms := held(t, c, 4)
	before := session(t, s.URL())

	execute(t, s.URL(), "ALTER ROLE postgres SET default_transaction_read_only = off")
	execute(t, s.URL(), "ALTER SYSTEM SET default_transaction_read_only = on")
	execute(t, s.URL(), "SELECT pg_reload_conf()")
	eventually(t, "sessions of before take no writes", func() bool {
		var readOnly string
		require.NoError(t, before.QueryRow(t.Context(), "SHOW default_transaction_read_only").Scan(&readOnly))
		return readOnly == "on"
	})
	require.NoError(t, c.Mutex("another").Lock(withTimeout(t, ttl)))
	stillHeld(t, ttl, ms...)
	unlock(t, ms...)
}

// Of several hosts one that accepts connections and never answers costs seconds, not minutes.
func TestOpen_besideAHostThatHangs(t *testing.T) {
	t.Parallel()
	s := testserver.SharedPostgres(t)
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = silent.Close() })
	c := openURL(t, fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable", silent.Addr(), s.Addr()),
		locker.WithPrefix(prefixOf(t)), locker.WithTTL(time.Minute))
	m := c.Mutex("x")
	require.NoError(t, m.Lock(withTimeout(t, 30*time.Second)))
	unlock(t, m)
}

// A connection may use the simple protocol, and may read backslashes in strings as PostgreSQL did
// once.
func TestSessions_ofOtherKinds(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(s *testserver.PostgresServer) string{
		"simple protocol": func(s *testserver.PostgresServer) string { return s.URL() + "&default_query_exec_mode=simple_protocol" },
		"standard_conforming_strings=off": func(s *testserver.PostgresServer) string {
			execute(t, s.URL(), "ALTER ROLE postgres SET standard_conforming_strings = off")
			return s.URL()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := change(testserver.Postgres(t))
			const ttl = 3 * time.Second
			c := openURL(t, url, locker.WithTTL(ttl))
			ms := append(held(t, c, 2), c.Mutex("x"))
			require.NoError(t, ms[2].Lock(t.Context()))
			next := openURL(t, url).Mutex("x")
			locked := waits(t, t.Context(), c, next, 1)
			stillHeld(t, ttl, ms...)
			unlock(t, ms...)
			require.NoError(t, await(t, locked))
			names := 0
			for _, err := range c.List(t.Context(), "") {
				require.NoError(t, err)
				names++
			}
			assert.Equal(t, 1, names)
			state, err := c.Inspect(t.Context(), "x")
			require.NoError(t, err)
			require.NoError(t, c.ForceRelease(t.Context(), "x", state))
			require.ErrorIs(t, next.Unlock(t.Context()), locker.ErrLost)
		})
	}
}

// A server that does not answer ends a Lock whose context has no end with an error that is nobody's
// deadline.
func TestLock_onASilentServerWithoutADeadline(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	unlock(t, held(t, openURL(t, s.URL()), 1)...)
	c := openURL(t, s.URL(), locker.WithTTL(2*time.Second))
	eventually(t, "it has a connection", func() bool { m := c.Mutex("x"); return m.Lock(t.Context()) == nil && m.Unlock(t.Context()) == nil })
	s.Stop()
	err := c.Mutex("x").Lock(context.Background())
	s.Continue()
	require.Error(t, err)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, locker.ErrHeld)
}

// A Unix socket, whose folder is a parameter as it is to psql.
func TestOpen_ofAUnixSocket(t *testing.T) {
	t.Parallel()
	dir, err := os.MkdirTemp("", "socket") // t.TempDir may be too long for a socket
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o777))
	s := testserver.Postgres(t, testserver.PostgresSettings("unix_socket_directories="+dir))
	_, port, err := net.SplitHostPort(s.Addr())
	require.NoError(t, err)
	unlock(t, held(t, openURL(t, "postgres://postgres@/postgres?host="+dir+"&port="+port), 1)...)
}

// A server, or a proxy, may refuse without a code.
func TestLock_refusedWithoutACode(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go refuse(conn)
		}
	}()
	err = openURL(t, "postgres://postgres@"+l.Addr().String()+"/postgres?sslmode=disable").Mutex("x").Lock(t.Context())
	require.ErrorContains(t, err, "not today")
}

// refuse speaks PostgreSQL's protocol, and answers each request with an error.
func refuse(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	server := pgproto3.NewBackend(conn, conn)
	if _, err := server.ReceiveStartupMessage(); err != nil {
		return
	}
	server.Send(&pgproto3.AuthenticationOk{})
	server.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for server.Flush() == nil {
		message, err := server.Receive()
		if err != nil {
			return
		}
		switch message.(type) {
		case *pgproto3.Parse, *pgproto3.Query:
			server.Send(&pgproto3.ErrorResponse{Severity: "ERROR", SeverityUnlocalized: "ERROR", Message: "not today"})
		}
		switch message.(type) {
		case *pgproto3.Sync, *pgproto3.Query:
			server.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		}
	}
}

// A certificate is replaced before it ends. New connections have what the files have by then.
func TestTLS_filesThatWereReplaced(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(testserver.SharedPostgres(t).URL())
	require.NoError(t, err)
	secure, other := testserver.NewTLSProxy(t, u.Host), testserver.NewTLSProxy(t, u.Host)
	l, err := net.Listen("tcp", "127.0.0.1:0") // says that there is TLS, as PostgreSQL does
	require.NoError(t, err)
	var running sync.WaitGroup
	t.Cleanup(func() { _ = l.Close(); running.Wait() })
	running.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(client, make([]byte, 8)) // SSLRequest
			_, _ = client.Write([]byte("S"))
			server, err := net.Dial("tcp", secure.Addr())
			if err != nil {
				_ = client.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
				running.Go(func() {
					_, _ = io.Copy(way[0], way[1])
					_, _ = way[0].Close(), way[1].Close()
				})
			}
		}
	})
	dir := t.TempDir()
	files := testserver.CopyFiles(t, dir, other.CAFile, other.CertFile, other.KeyFile)
	u.Host = l.Addr().String()
	u.RawQuery = url.Values{"sslmode": {"verify-full"}, "sslrootcert": files[:1], "sslcert": files[1:2], "sslkey": files[2:]}.Encode()
	c := openURL(t, u.String(), locker.WithPrefix(prefixOf(t)))
	require.Error(t, c.Mutex("x").TryLock(t.Context()))
	testserver.CopyFiles(t, dir, secure.CAFile, secure.CertFile, secure.KeyFile)
	require.NoError(t, c.Mutex("x").Do(t.Context(), func(context.Context) error { return nil }))
	require.NoError(t, c.Close())
}
