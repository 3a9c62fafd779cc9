package postgres_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/postgres"
)

// stillHeld waits until all of them must have been renewed, and fails if one was lost meanwhile.
func stillHeld(t *testing.T, ttl time.Duration, ms ...*locker.Mutex) {
	t.Helper()
	time.Sleep(2 * ttl)
	for i, m := range ms {
		require.NotZero(t, m.FencingToken(), "hold %d is lost", i)
	}
}

func held(t *testing.T, c *locker.Client, n int) (ms []*locker.Mutex) {
	t.Helper()
	for i := range n {
		m := c.Mutex(fmt.Sprint("hold", i))
		require.NoError(t, m.Lock(t.Context()))
		ms = append(ms, m)
	}
	return ms
}

func unlock(t *testing.T, ms ...*locker.Mutex) {
	t.Helper()
	for _, m := range ms {
		require.NoError(t, m.Unlock(t.Context()))
	}
}

// Holds that are due together are renewed by one statement, in a table of a schema as in any other.
func TestRenewal_inATableWithASchema(t *testing.T) {
	t.Parallel()
	url := testserver.SharedPostgres(t).URL()
	execute(t, url, "CREATE SCHEMA renewed")
	const ttl = 3 * time.Second
	c := openURL(t, url+"&table=renewed.locks", locker.WithTTL(ttl))
	ms := held(t, c, 3)
	stillHeld(t, ttl, ms...)
	unlock(t, ms...)
}

// A row that another transaction has locked keeps nobody else's hold from being renewed, and its
// own only until that ends.
func TestRenewal_besideALockedRow(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	const ttl = 3 * time.Second
	c := openURL(t, s.URL(), locker.WithTTL(ttl))
	ms := held(t, c, 3)
	conn, err := pgx.Connect(t.Context(), s.URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM locker_locks WHERE name = 'locker:hold1' FOR SHARE")
	require.NoError(t, err)
	stillHeld(t, ttl, ms[0], ms[2])
	require.Zero(t, ms[1].FencingToken(), "its row cannot be written")
	require.NoError(t, tx.Rollback(t.Context()))
	unlock(t, ms[0], ms[2])

	// For less than the rest of its TTL it costs the hold nothing.
	m := c.Mutex("hold1")
	require.NoError(t, m.Lock(t.Context()))
	tx, err = conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM locker_locks WHERE name = 'locker:hold1' FOR SHARE")
	require.NoError(t, err)
	time.Sleep(ttl / 2)
	require.NoError(t, tx.Rollback(t.Context()))
	stillHeld(t, ttl, m)
	unlock(t, m)
}

// Others lock the row one after the other, with no time between: a renewal has its turn.
func TestRenewal_ofARowThatOthersLockAllTheTime(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	pool, counts := poolOf(t, s.URL())
	c, err := postgres.New(pool, locker.WithTTL(time.Minute))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	m := held(t, c, 1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	var lockers []<-chan error
	for range 3 {
		conn, err := pgx.Connect(t.Context(), s.URL())
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		lockers = append(lockers, async(func() error {
			for ctx.Err() == nil {
				if _, err := conn.PgConn().Exec(t.Context(), "BEGIN; SELECT FROM locker_locks WHERE key <> '' FOR UPDATE; SELECT pg_sleep(0.1); COMMIT").ReadAll(); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	eventually(t, "one has it, and another waits", func() bool {
		return value[bool](t, s.URL(), "SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
	})
	var most int64
	for range 5 {
		most = max(most, counts.of(func() { require.NoError(t, m.Extend(t.Context())) }))
	}
	assert.Less(t, most, int64(20), "requests of one Extend")
	cancel()
	for _, done := range lockers {
		require.NoError(t, await(t, done))
	}
	unlock(t, m)
}

// An application that uses all connections of the pool for longer than a TTL loses no hold, and can
// unlock.
func TestPool_whoseConnectionsAreInUse(t *testing.T) {
	t.Parallel()
	pool, _ := poolOf(t, testserver.SharedPostgres(t).URL())
	const ttl = 3 * time.Second
	c, err := postgres.New(pool, locker.WithPrefix(prefixOf(t)), locker.WithTTL(ttl))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	ms := held(t, c, 10)
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		t.Cleanup(conn.Release)
	}
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
	before, err := pgx.Connect(t.Context(), s.URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = before.Close(context.Background()) })

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

// Two users whose search_path is not the same have the same lock, and not a table each.
func TestTable_isTheSameForEverySearchPath(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	execute(t, s.URL(), "CREATE SCHEMA other")
	execute(t, s.URL(), "ALTER ROLE postgres SET search_path = other, public")
	first := openURL(t, s.URL()).Mutex("x")
	require.NoError(t, first.Lock(t.Context()))
	execute(t, s.URL(), "ALTER ROLE postgres RESET search_path")
	require.ErrorIs(t, openURL(t, s.URL()).Mutex("x").TryLock(t.Context()), locker.ErrHeld)
	unlock(t, first)
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

// What docs/backends/postgres.md has people type frees the lock, and its holder's Unlock says that
// it is lost.
func TestFreedByHand_theHolderHearsOfIt(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	c := openURL(t, s.URL())
	m := held(t, c, 1)[0]
	execute(t, s.URL(), pageLine(t, "SELECT ended FROM"))
	next := openURL(t, s.URL()).Mutex("hold0")
	require.NoError(t, next.TryLock(t.Context()))
	unlock(t, next)
	require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
}

// pageLine returns the line of the backend's page that begins so.
func pageLine(t *testing.T, begins string) string {
	t.Helper()
	page, err := os.ReadFile("../docs/backends/postgres.md")
	require.NoError(t, err)
	for line := range strings.Lines(string(page)) {
		if strings.HasPrefix(line, begins) {
			return strings.Replace(line, "orders/42", "hold0", 1)
		}
	}
	t.Fatalf("no line of the page begins with %q", begins)
	return ""
}

// Rows that others have locked, as many as the Client has connections, keep it from nothing that is
// about another lock.
func TestRelease_besideLockedRows(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	const ttl = 10 * time.Second
	c := openURL(t, s.URL()+"&pool_max_conns=2", locker.WithTTL(ttl))
	ms := held(t, c, 6)
	conn, err := pgx.Connect(t.Context(), s.URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM locker_locks WHERE name IN ('locker:hold0', 'locker:hold1', 'locker:hold2') FOR UPDATE")
	require.NoError(t, err)
	var released []<-chan error
	for _, m := range ms[:3] {
		released = append(released, async(func() error { return m.Unlock(t.Context()) }))
	}
	time.Sleep(100 * time.Millisecond) // they wait for the rows
	require.NoError(t, ms[3].Extend(withTimeout(t, ttl/2)))
	require.NoError(t, ms[4].Unlock(withTimeout(t, ttl/2)))
	stillHeld(t, ttl, ms[3], ms[5])
	require.NoError(t, tx.Rollback(t.Context()))
	for _, done := range released {
		_ = await(t, done) // it has expired meanwhile
	}
	unlock(t, ms[3], ms[5])
}

// A Lock waits for a row that another transaction has locked in a statement that gives up soon:
// Locks of other names are behind it.
func TestLock_besideALockedRow(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	c := openURL(t, s.URL(), locker.WithTTL(time.Minute))
	m := held(t, c, 1)[0]
	unlock(t, m)
	conn, err := pgx.Connect(t.Context(), s.URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT FROM locker_locks FOR UPDATE")
	require.NoError(t, err)
	locked := async(func() error { return m.Lock(t.Context()) })
	eventually(t, "it waits", func() bool {
		query := value[string](t, s.URL(), "SELECT coalesce(max(query), '') FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
		require.NotContains(t, query, "UPDATE", "nothing ends that")
		return query != ""
	})
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, await(t, locked))
	unlock(t, m)
}

// A table that somebody has dropped is made again when it is needed.
func TestLock_afterATableWasDropped(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	c, other := openURL(t, s.URL()), openURL(t, s.URL())
	m, next := c.Mutex("x"), other.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	execute(t, s.URL(), "DROP TABLE locker_locks_waiters")
	locked := async(func() error { return next.Lock(t.Context()) })
	eventually(t, "it waits", func() bool {
		return value[bool](t, s.URL(), "SELECT to_regclass('locker_locks_waiters') IS NOT NULL") && waiters(t, c, "x") == 1
	})
	unlock(t, m)
	require.NoError(t, await(t, locked))
	unlock(t, next)
}

// Whoever makes the table of the locks a logged one hears of it: a standby would show old rows as
// whole.
func TestTable_thatIsLogged(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	unlock(t, held(t, openURL(t, s.URL()), 1)...)
	execute(t, s.URL(), "ALTER TABLE locker_locks SET LOGGED")
	require.ErrorContains(t, openURL(t, s.URL()).Mutex("x").Lock(t.Context()), "locker_locks is a logged table")
	execute(t, s.URL(), "ALTER TABLE locker_locks SET UNLOGGED")
	execute(t, s.URL(), "ALTER TABLE locker_locks_ttls SET UNLOGGED")
	require.ErrorContains(t, openURL(t, s.URL()).Mutex("x").Lock(t.Context()), "locker_locks_ttls is an unlogged table")
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
