package mysql_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/fence/sqlfence"
	"github.com/go-locker/locker/internal/test/sqlcases"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/sql/mysql"
)

// The lock is the same however connections count rows, send statements and read.
func TestLock_onAnyPool(t *testing.T) {
	t.Parallel()
	s := testserver.MariaDB(t, testserver.MariaDBSettings("log-bin=binlog"))
	for _, parameters := range []string{
		"", "interpolateParams=true", "clientFoundRows=true", "multiStatements=true", "time_zone=%27-05:00%27", "sql_mode=%27ANSI%27",
		"sql_mode=%27ORACLE,NO_BACKSLASH_ESCAPES%27&interpolateParams=true", "transaction_isolation=%27SERIALIZABLE%27",
		"transaction_isolation=%27READ-COMMITTED%27", "transaction_isolation=%27READ-UNCOMMITTED%27", "binlog_format=STATEMENT",
	} {
		t.Run(parameters, func(t *testing.T) {
			t.Parallel()
			parameters = strings.Replace(parameters, "transaction_isolation", "tx_isolation", 1) // as MariaDB 10 calls it
			c, err := mysql.New(pool(t, s.Addr(), parameters), locker.WithTTL(20*time.Second), locker.WithPrefix(parameters))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, c.Close()) })
			holder, waiter := c.Mutex("x"), c.Mutex("x")
			var last uint64
			for range 3 {
				require.NoError(t, holder.Lock(t.Context()))
				assert.Greater(t, holder.FencingToken(), last)
				last = holder.FencingToken()
				other := newClient(t, s.URL(), locker.WithPrefix(parameters))
				require.ErrorIs(t, other.Mutex("x").TryLock(t.Context()), locker.ErrHeld)
				require.NoError(t, holder.Extend(t.Context()))
				waiting := async(func() error { return waiter.Lock(t.Context()) })
				eventually(t, "it waits", func() bool {
					state, err := other.Inspect(t.Context(), "x")
					return err == nil && len(state.Waiters) == 1
				})
				require.NoError(t, holder.Unlock(t.Context()))
				require.NoError(t, await(t, waiting))
				assert.Greater(t, waiter.FencingToken(), last)
				require.NoError(t, waiter.Unlock(t.Context()))
			}
			require.NoError(t, holder.Lock(t.Context()))
			require.NoError(t, c.Mutex("X").TryLock(t.Context()), "names differ though a collation takes them for one")
			require.NoError(t, c.Mutex("x ").TryLock(t.Context()))
			state, err := c.Inspect(t.Context(), "x")
			require.NoError(t, err)
			assert.Empty(t, state.Waiters)
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
	var looking []<-chan error
	for range 4 { // some connections
		looking = append(looking, async(func() error { _, err := c.Inspect(t.Context(), "x"); return err }))
	}
	for _, done := range looking {
		require.NoError(t, await(t, done))
	}
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

// Many goroutines and Clients that want a few names get each of them in turn, whatever deadlocks
// InnoDB finds.
func TestLock_underContention(t *testing.T) {
	t.Parallel()
	s := testserver.SharedMariaDB(t)
	const clients, each, rounds = 4, 4, 5
	var inside [2]int
	var done []<-chan error
	for range clients {
		c := newClient(t, s.URL(), locker.WithPrefix("contended"), locker.WithTTL(time.Minute))
		for g := range each {
			done = append(done, async(func() error {
				for range rounds {
					err := c.Mutex(fmt.Sprint(g%2)).Do(t.Context(), func(context.Context) error {
						inside[g%2]++ // the lock guards it
						return nil
					})
					if err != nil {
						return err
					}
				}
				return nil
			}))
		}
	}
	for _, d := range done {
		require.NoError(t, testwait.Patience(2*time.Minute).Result(t, d))
	}
	assert.Equal(t, [2]int{clients * each / 2 * rounds, clients * each / 2 * rounds}, inside)
}

func TestFence_inTheSameTransaction(t *testing.T) {
	t.Parallel()
	db := pool(t, testserver.SharedMariaDB(t).Addr(), "")
	c, err := mysql.New(db, locker.WithTTL(20*time.Second), locker.WithoutRenewal())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	sqlcases.Fence(t, c, db, sqlfence.MySQL)
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
