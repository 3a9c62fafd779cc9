package postgres

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// An application that uses all connections of the pool for longer than a TTL, on a server that takes
// no other, loses no hold, and can unlock.
func TestPool_whoseConnectionsAreInUse(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t, testserver.PostgresSettings("max_connections=8", "superuser_reserved_connections=0"))
	pool, _ := poolOf(t, s.URL())
	const ttl = 3 * time.Second
	ms := held(t, newClientOver(t, pool, locker.WithTTL(ttl)), 10)
	for range pool.Config().MaxConns {
		conn, err := pool.Acquire(t.Context())
		require.NoError(t, err)
		t.Cleanup(conn.Release)
	}
	var err error
	for err == nil {
		var other *pgx.Conn
		if other, err = pgx.Connect(t.Context(), s.URL()); err == nil {
			t.Cleanup(func() { _ = other.Close(context.Background()) })
		}
	}
	require.ErrorContains(t, err, "53300")
	stillHeld(t, ttl, ms...)
	unlock(t, ms...)
}

// After a failover behind one address, connections of before lead to a server that takes no writes:
// what was the primary, or a standby. They are given up when they are found out, and holds go on.
func TestFailover_behindOneAddress(t *testing.T) {
	t.Parallel()
	primary := testserver.Postgres(t)
	r := &replication{primary, primary.Standby(), false}
	r.follows(t)
	standby, err := pgx.ParseConfig(r.standby.URL())
	require.NoError(t, err)
	for name, mislead := range map[string]func(*pgx.ConnConfig){
		"to what was the primary": func(c *pgx.ConnConfig) { c.RuntimeParams["default_transaction_read_only"] = "on" },
		"to a standby":            func(c *pgx.ConnConfig) { c.Port = standby.Port },
	} {
		var wrong atomic.Bool
		d := newDriverOf(t, primary.URL()+"&pool_max_conns=1", func(config *pgxpool.Config) {
			config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
				if wrong.Load() {
					mislead(c)
				}
				return nil
			}
		})
		connect := func() {
			wrong.Store(true)
			d.pool.Reset()
			require.NoError(t, d.pool.Ping(t.Context()))
			wrong.Store(false)
		}
		connect()
		if _, err = claims.Take(t.Context(), d, driver.Request{Name: name + " first", TTL: time.Minute}); err != nil {
			require.ErrorContains(t, err, "read-only", "the tables cannot be made there")
		}
		held := take(t, d, name)
		until(t, primary, replayed)
		connect()
		require.NoError(t, held.Extend(t.Context(), time.Minute), name)
		connect()
		require.NoError(t, take(t, d, name+" too").Release(t.Context()), name)
		require.NoError(t, held.Release(t.Context()), name)
	}
}

// Of several hosts one that accepts connections and never answers costs seconds, not minutes.
func TestOpen_besideAHostThatHangs(t *testing.T) {
	t.Parallel()
	s := testserver.SharedPostgres(t)
	silent := testwait.Closed(net.Listen("tcp", "127.0.0.1:0"))(t)
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
		"client_encoding=latin1": func(s *testserver.PostgresServer) string {
			execute(t, s.URL(), "ALTER ROLE postgres SET client_encoding = latin1")
			return s.URL()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := change(testserver.Postgres(t))
			harness.Rights(t, func() *locker.Client { return openURL(t, url) })
			warnings, err := openURL(t, url).Warnings(t.Context())
			require.NoError(t, err)
			require.NotContains(t, fmt.Sprint(warnings), "LISTEN")
		})
	}
}

// A server that does not answer ends a Lock whose context has no end with an error that is nobody's
// deadline.
func TestLock_onASilentServerWithoutADeadline(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	unlock(t, held(t, openURL(t, s.URL()), 1)...)
	c := openURL(t, s.URL(), locker.WithTTL(8*time.Second))
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

func TestOutage_isRiddenOutForHalfATTL(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	harness.Outage(t, s.URL(), s.Kill)
}

// A server that takes no connections for a while has answered nothing.
func TestOutage_isAServerThatTakesNoConnections(t *testing.T) {
	t.Parallel()
	t.Run("all are in use", func(t *testing.T) {
		t.Parallel()
		s := testserver.Postgres(t, testserver.PostgresSettings("max_connections=5", "superuser_reserved_connections=0"))
		var others []*pgx.Conn
		for len(others) < 5 {
			others = append(others, session(t, s.URL()))
		}
		c := openURL(t, s.URL())
		err := c.Mutex("x").TryLock(t.Context())
		require.ErrorContains(t, err, "53300")
		require.NotContains(t, err.Error(), "\n", "a log has it in one line")
		locked := make(chan error, 1)
		go func() { locked <- c.Mutex("x").Lock(t.Context()) }()
		time.Sleep(time.Second) // a Lock that does not wait would fail meanwhile
		for _, o := range others {
			require.NoError(t, o.Close(t.Context()))
		}
		require.NoError(t, <-locked)
	})
	t.Run("it shuts down", func(t *testing.T) {
		t.Parallel()
		s := testserver.Postgres(t)
		session(t, s.URL()) // which it waits for
		require.NoError(t, syscall.Kill(s.PID(), syscall.SIGTERM))
		c := openURL(t, s.URL())
		require.Eventually(t, func() bool {
			_, err := pgx.Connect(t.Context(), s.URL())
			return err != nil
		}, time.Minute, time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := c.Mutex("x").Lock(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, "57P03")
	})
}

// All connections that are open fall silent, and new ones work, as behind a firewall that has lost
// its table.
func TestOutage_ofTheConnectionsThatAreOpen(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	network := testserver.NewProxy(t, s.Addr())
	url := strings.Replace(s.URL(), s.Addr(), network.Addr(), 1)
	c, other := openURL(t, url, locker.WithTTL(12*time.Second)), openURL(t, s.URL())
	m, ahead, behind := c.Mutex("held"), other.Mutex("x"), c.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	require.NoError(t, ahead.Lock(t.Context()))
	locked := waits(t, t.Context(), other, behind, 1)
	token := m.FencingToken()
	for i := range 3 {
		var all sync.WaitGroup
		for k := range 10 { // on all connections of the pool
			all.Go(func() { assert.NoError(t, c.Mutex(fmt.Sprint("z", i, k)).Lock(t.Context())) })
		}
		all.Wait()
		network.HushConns()
		require.NoError(t, c.Mutex(fmt.Sprint("after", i)).Lock(t.Context()))
	}
	network.HushConns()
	unlock(t, ahead)
	require.NoError(t, await(t, locked))
	require.Equal(t, token, m.FencingToken())
	unlock(t, m, behind)
}

// A request that is not answered has the connections given up that nobody uses: else each of them
// would cost as long.
func TestOutage_ofIdleConnections(t *testing.T) {
	t.Parallel()
	s := testserver.SharedPostgres(t)
	network := testserver.NewProxy(t, s.Addr())
	d := newDriverOf(t, strings.Replace(s.URL(), s.Addr(), network.Addr(), 1))
	for range 2 {
		conn, err := d.pool.Acquire(t.Context())
		require.NoError(t, err)
		time.AfterFunc(100*time.Millisecond, conn.Release)
	}
	eventually(t, "nobody uses them", func() bool { return d.pool.Stat().IdleConns() == 2 })
	network.HushConns()
	_, err := d.Inspect(withTimeout(t, time.Second), "x")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = d.Inspect(withTimeout(t, 10*time.Second), "x")
	require.NoError(t, err)
}

// throughPooler are scenarios of the suite, for a Locker whose requests go through any of a few
// connections.
var throughPooler = []string{
	"everyone who waits is served", "a Lock cancelled at any moment leaves nothing behind", "tokens rise in the order of the holds, with many contending",
	"a take whose reply was lost leaves nothing behind", "waiters are served in the order in which they came", "a random history is that of one lock",
}

// A pooler in transaction mode has each statement run on any of its connections. Statements that
// pgx has prepared on one are unknown to the others, and nothing that is notified arrives.
func TestPgBouncer(t *testing.T) {
	testwait.OnlyNightly(t, "it is a server more")
	t.Parallel()
	s := testserver.Postgres(t)
	pooler := testserver.PgBouncer(t, s, 4)
	h := harness.ForURL(2*time.Second, "postgres://postgres@%s/postgres?sslmode=disable&connect_timeout=5", []string{pooler.Addr()})
	h.RW = nil
	for _, scenario := range conformance.Scenarios() {
		for _, name := range throughPooler {
			if scenario.Name != name {
				continue
			}
			t.Run(name, func(t *testing.T) {
				r := conformance.Examine(t, scenario, h)
				assert.Equal(t, conformance.Kept, r.Outcome, "%s %v", r.Outcome, r.Seen)
			})
		}
	}
	t.Run("Warnings, and what waiters do", func(t *testing.T) {
		c := openURL(t, pooler.URL(), locker.WithPrefix(prefixOf(t)))
		warnings, err := c.Warnings(t.Context())
		require.NoError(t, err)
		assert.Contains(t, strings.Join(warnings, "\n"), "notifications do not arrive")
		m := openURL(t, s.URL(), locker.WithPrefix(prefixOf(t))).Mutex("x")
		next := c.Mutex("x")
		for range 3 {
			require.NoError(t, m.Lock(t.Context()))
			locked := waits(t, t.Context(), c, next, 1)
			require.NoError(t, m.Unlock(t.Context()))
			require.NoError(t, await(t, locked), "it looks")
			require.NoError(t, next.Unlock(t.Context()))
		}
	})
}
