package mysql

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/noanswer"
	"github.com/go-locker/locker/internal/test/fuzzurl"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/sqlcases"
	"github.com/go-locker/locker/internal/test/testserver"

	"github.com/go-locker/locker/internal/test/testwait"
)

// The lock is the same however connections count rows, send statements and read.
func TestLock_onAnyPool(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t, testserver.MariaDBSettings("log-bin=binlog"))
	for _, parameters := range []string{
		"", "interpolateParams=true", "clientFoundRows=true", "multiStatements=true", "time_zone=%27-05:00%27", "sql_mode=%27ANSI%27",
		"sql_mode=%27ORACLE,NO_BACKSLASH_ESCAPES%27&interpolateParams=true", "tx_isolation=%27SERIALIZABLE%27",
		"tx_isolation=%27READ-COMMITTED%27", "tx_isolation=%27READ-UNCOMMITTED%27", "binlog_format=STATEMENT",
	} {
		t.Run(parameters, func(t *testing.T) {
			t.Parallel()
			harness.Rights(t, func() *locker.Client {
				return newClientOver(t, pool(t, s.Addr(), parameters), locker.WithPrefix(parameters))
			})
			c := newClient(t, s.URL(), locker.WithPrefix(parameters))
			require.ErrorIs(t, c.Mutex("x").TryLock(t.Context()), locker.ErrHeld)
			require.NoError(t, c.Mutex("X").TryLock(t.Context()), "names differ though a collation takes them for one")
			require.NoError(t, c.Mutex("x ").TryLock(t.Context()))
		})
	}
}

// Here a take waits for a row that somebody has locked by hand.
func TestRelease_beforeItsTakeArrives(t *testing.T) {
	t.Parallel()
	s := testserver.SharedMariaDB(t)
	d, db := newDriver(t, s, "")
	sqlcases.Released(t, d, db, func(name []byte) (unblock func()) {
		return lockRows(t, pool(t, s.Addr(), ""), "locker_locks WHERE name = ?", name)
	})
}

// After a failover behind one address, connections of before lead to a server that takes no writes.
// They are given up when one is found out. Here the server is one: sessions of before take no
// writes, as after a demotion.
func TestFailover_behindOneAddress(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t)
	db := pool(t, s.Addr(), "")
	m := newClient(t, s.URL()).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	execute(t, db, "SET GLOBAL tx_read_only = ON")
	c := newClient(t, s.URL())
	connected(t, c, 4)
	require.ErrorContains(t, newClient(t, s.URL()).Mutex("y").TryLock(t.Context()), "READ ONLY")
	execute(t, db, "SET GLOBAL tx_read_only = OFF")
	for i := range 4 {
		next := c.Mutex(fmt.Sprint(i))
		require.NoError(t, next.TryLock(t.Context()))
		require.NoError(t, next.Unlock(t.Context()))
	}
	require.NoError(t, m.Unlock(t.Context()))

	// Where one may write to a server all the same that is to take no writes, it is not asked what
	// it knows.
	execute(t, db, "SET GLOBAL read_only = ON")
	err := c.Mutex("z").TryLock(t.Context())
	require.ErrorContains(t, err, "read_only")
	require.NotErrorIs(t, err, locker.ErrHeld)
}

// A row that another transaction has locked keeps that hold from being renewed, and no other.
func TestRenewal_besideALockedRow(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t)
	const ttl = 10 * time.Second
	c := newClient(t, s.URL(), locker.WithTTL(ttl))
	a, b := c.Mutex("a"), c.Mutex("b")
	require.NoError(t, a.Lock(t.Context()))
	require.NoError(t, b.Lock(t.Context()))
	unlock := lockRows(t, pool(t, s.Addr(), ""), "locker_locks WHERE name LIKE '%:a'")
	time.Sleep(ttl / 2)
	unlock()
	time.Sleep(ttl)
	require.NoError(t, a.Unlock(t.Context()), "for less than the rest of its TTL that costs nothing")
	require.NoError(t, b.Unlock(t.Context()))
}

func TestSweep(t *testing.T) {
	t.Parallel()
	d, db := newDriver(t, testserver.SharedMariaDB(t), "locker.swept")
	sqlcases.Sweep(t, d, db, "swept", "swept_waiters")
}

func TestWarnings(t *testing.T) {
	t.Parallel()
	const log, durable = "log-bin=binlog", "innodb-flush-log-at-trx-commit=1"
	for _, c := range []struct {
		settings, want []string
	}{
		{nil, []string{"innodb_flush_log_at_trx_commit=0"}},
		{[]string{durable}, nil},
		{[]string{log}, []string{"innodb_flush_log_at_trx_commit=0", "sync_binlog=0", "asynchronous"}},
		{[]string{log, durable, "sync-binlog=1"}, []string{"asynchronous"}},
		{[]string{log, durable, "sync-binlog=1", "rpl-semi-sync-master-enabled=ON"}, nil},
	} {
		s := testserver.MariaDB(t, testserver.MariaDBSettings(c.settings...))
		warnings, err := newClient(t, s.URL()).Warnings(t.Context())
		require.NoError(t, err)
		require.Len(t, warnings, len(c.want), c.settings)
		for i, want := range c.want {
			assert.Contains(t, warnings[i], want)
		}
	}
}

func TestOpen_refuses(t *testing.T) {
	harness.RefusesURLs(t, map[string]string{
		"mysql://h": "name of the database", "mysql://h/a/b": "name of the database",
		"mysql://a:s3cret@h1,h2/a": "one host", "mysql://h/a?tls=maybe": "tls",
		"mariadb://h/a?table=": "empty", "mysql://h/a?table=caf%C3%A9": "ASCII",
		"mysql://h/a?connect_timeout=0s": "connect_timeout", "mysql://h/a?pool_size=0": "pool_size",
		"mysql://h/a?charset=utf8": "charset",
	})
	c, err := locker.Open(t.Context(), "mysql://app:s3cret@192.0.2.1/app?table=jobs.locks&tls=skip-verify&connect_timeout=1s&pool_size=2")
	require.NoError(t, err)
	require.NoError(t, c.Close())
	assert.Equal(t, "`a``b`.`c.d`", quoted("a`b.c.d"))
}

func FuzzOpen(f *testing.F) {
	fuzzurl.Run(f, "mysql", func(_ context.Context, u *driver.URL) (driver.Driver, error) {
		_, err := connectorOf(u)
		return nil, err
	}, "h1:1/db?tls=true", "[::1]/x", "h?connect_timeout=1s")
}

// A connection that a server accepts and says nothing on ends, though whoever wants it has no
// deadline. A server that goes away while a connection to it is made is an outage, whatever the
// library calls that.
func TestConnect_toAServerThatSaysNothing(t *testing.T) {
	listener := testwait.Closed(net.Listen("tcp", "127.0.0.1:0"))(t)
	u, err := driver.ParseURL("mysql://" + listener.Addr().String() + "/app?connect_timeout=50ms")
	require.NoError(t, err)
	c, err := connectorOf(u)
	require.NoError(t, err)
	_, err = c.Connect(t.Context())
	require.ErrorIs(t, err, context.DeadlineExceeded)

	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	client := testwait.Closed(locker.Open(t.Context(), "mysql://app@"+listener.Addr().String()+"/app?connect_timeout=5s"))(t)
	err = client.Mutex("x").TryLock(t.Context())
	require.Error(t, err)
	assert.True(t, noanswer.Outage(err), err)
	assert.True(t, later(errors.New("bad connection")), "which is rare")
}
