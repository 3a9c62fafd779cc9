package postgres_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/sql/postgres"
)

func newPool(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, _ := poolOf(t, testserver.Postgres(t).URL())
	return pool
}

func newDriver(t *testing.T, pool *pgxpool.Pool, table string) claims.Driver {
	t.Helper()
	d := postgres.NewDriver(pool, table)
	t.Cleanup(func() { _ = d.Close() })
	return d.(claims.Driver)
}

func request(name string) driver.Request {
	return driver.Request{Name: name, Metadata: "test", TTL: time.Minute}
}

func acquire(t *testing.T, d driver.Driver, name string) driver.Lease {
	t.Helper()
	l, err := claims.Take(t.Context(), d, request(name))
	require.NoError(t, err)
	return l
}

func TestRelease_thatIsSentAgainSucceedsUntilAnotherReleases(t *testing.T) {
	d := newDriver(t, newPool(t), "")
	l := acquire(t, d, "name")
	require.NoError(t, l.Release(t.Context()))
	assert.NoError(t, l.Release(t.Context()))
	require.ErrorIs(t, l.Extend(t.Context(), time.Minute), locker.ErrLost)
	next := acquire(t, d, "name")
	assert.Greater(t, next.Token(), l.Token())
	require.NoError(t, l.Release(t.Context()))
	require.NoError(t, next.Extend(t.Context(), time.Minute), "it was not another's to release")
	require.NoError(t, next.Release(t.Context()))
	require.ErrorIs(t, l.Release(t.Context()), locker.ErrLost)
}

// A renewal was under way when its hold was released. Then the server loses the table. The renewal
// reclaims nothing: the lock is another's.
func TestExtend_afterTheReleaseAndTheLossOfTheTable(t *testing.T) {
	pool := newPool(t)
	d := newDriver(t, pool, "")
	l := acquire(t, d, "name")
	require.NoError(t, l.Release(t.Context()))
	next := acquire(t, d, "name")
	_, err := pool.Exec(t.Context(), "TRUNCATE locker_locks")
	require.NoError(t, err)
	require.ErrorIs(t, l.Extend(t.Context(), time.Minute), locker.ErrLost)
	require.NoError(t, next.Extend(t.Context(), time.Minute))
}

func TestTable_isLost(t *testing.T) {
	pool := newPool(t)
	d := newDriver(t, pool, "")
	l := acquire(t, d, "name")
	_, err := pool.Exec(t.Context(), "DROP TABLE locker_locks, locker_locks_ttls")
	require.NoError(t, err)
	require.ErrorIs(t, l.Extend(t.Context(), time.Minute), locker.ErrLost)
	require.ErrorIs(t, l.Release(t.Context()), locker.ErrLost)
	extended := d.ExtendAll(t.Context(), []driver.Lease{l}, time.Minute)
	require.ErrorIs(t, extended[0], locker.ErrLost)
	assert.Greater(t, acquire(t, d, "name").Token(), l.Token())
}

func TestExtendAll_tellsThoseThatLast(t *testing.T) {
	d := newDriver(t, newPool(t), "")
	a, b, c := acquire(t, d, "a"), acquire(t, d, "b"), acquire(t, d, "c")
	require.NoError(t, b.Release(t.Context()))
	before := c.Validity()
	errs := d.ExtendAll(t.Context(), []driver.Lease{c, b, a}, time.Hour)
	require.Len(t, errs, 3)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], locker.ErrLost)
	require.NoError(t, errs[2])
	assert.Greater(t, c.Validity(), before)
	state, err := d.Inspect(t.Context(), "a")
	require.NoError(t, err)
	assert.Greater(t, state.Left, time.Minute)
}

func TestInspect_whereThereIsNoTable(t *testing.T) {
	d := newDriver(t, newPool(t), "public.locks of mine")
	state, err := d.Inspect(t.Context(), "name")
	require.NoError(t, err)
	assert.Zero(t, state)
	l := acquire(t, d, "name")
	state, err = d.Inspect(t.Context(), "name")
	require.NoError(t, err)
	assert.Equal(t, l.Token(), state.Token)
	require.NoError(t, l.Release(t.Context()))
}

func TestOpen_refuses(t *testing.T) {
	for _, query := range []string{"ttl=1500ns", "tabel=locks", "table=", "sslmode=sometimes", "host=/run/postgresql"} {
		_, err := locker.Open(t.Context(), "postgres://app:s3cret@localhost/app?"+query)
		require.Error(t, err, query)
		assert.NotContains(t, err.Error(), "s3cret")
	}
	_, err := locker.Open(t.Context(), "postgres://localhost?ttl=1500ns")
	assert.ErrorIs(t, err, locker.ErrUnsupported)
}

// docs/backends/postgres.md has every parameter, and no other.
func TestURLsPage_hasEveryParameter(t *testing.T) {
	page, err := os.ReadFile("../../docs/backends/postgres.md")
	require.NoError(t, err)
	_, section, _ := strings.Cut(string(page), "\n## The URL\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var rows []string
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)`").FindAllStringSubmatch(section, -1) {
		rows = append(rows, row[1])
	}
	_, err = locker.Open(t.Context(), "postgres://192.0.2.1/app?no_such=1")
	_, known, ok := strings.Cut(err.Error(), "known are ")
	require.True(t, ok, err.Error())
	for parameter := range strings.SplitSeq(known, ", ") {
		if parameter != "ttl" && !slices.Contains([]string{"renew", "prefix", "require", "token_base", "metadata", "backoff"}, parameter) {
			assert.Contains(t, rows, parameter)
		}
	}
	assert.Len(t, rows, 12)
}

// A server that was restarted, or a proxy, has ended connections that the pool takes for good ones.
func TestLock_onAConnectionThatTheServerHasEnded(t *testing.T) {
	server := testserver.Postgres(t)
	pool, _ := poolOf(t, server.URL())
	c, err := postgres.New(pool, locker.WithTTL(time.Minute))
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	admin := session(t, server.URL())
	m := c.Mutex("x")
	for _, before := range []bool{false, true} { // the Client has had the lock
		conns := pool.AcquireAllIdle(t.Context())
		for range 3 {
			conn, err := pool.Acquire(t.Context())
			require.NoError(t, err)
			conns = append(conns, conn)
		}
		for _, conn := range conns {
			conn.Release()
		}
		_, err = admin.Exec(t.Context(), "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'")
		require.NoError(t, err)
		require.NoError(t, m.Lock(t.Context()), before)
		require.NoError(t, m.Unlock(t.Context()))
	}
}
