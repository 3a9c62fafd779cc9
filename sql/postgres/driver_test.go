package postgres

import (
	"context"
	"crypto/sha256"
	"flag"
	"fmt"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/fence/sqlfence"
	"github.com/go-locker/locker/internal/test/fuzzurl"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestRelease_thatIsSentAgainSucceedsUntilAnotherReleases(t *testing.T) {
	d := newTestDriver(t)
	l := take(t, d, "name")
	require.NoError(t, l.Release(t.Context()))
	assert.NoError(t, l.Release(t.Context()))
	require.ErrorIs(t, l.Extend(t.Context(), time.Minute), locker.ErrLost)
	next := take(t, d, "name")
	assert.Greater(t, next.Token(), l.Token())
	require.NoError(t, l.Release(t.Context()))
	require.NoError(t, next.Extend(t.Context(), time.Minute), "it was not another's to release")
	require.NoError(t, next.Release(t.Context()))
	require.ErrorIs(t, l.Release(t.Context()), locker.ErrLost)
}

// A renewal was under way when its hold was released. Then the server loses the table. The renewal
// reclaims nothing: the lock is another's.
func TestExtend_afterTheReleaseAndTheLossOfTheTable(t *testing.T) {
	d := newTestDriver(t)
	l := take(t, d, "name")
	require.NoError(t, l.Release(t.Context()))
	next := take(t, d, "name")
	require.NoError(t, d.exec(t.Context(), "TRUNCATE locker_locks"))
	require.ErrorIs(t, l.Extend(t.Context(), time.Minute), locker.ErrLost)
	require.NoError(t, next.Extend(t.Context(), time.Minute))
}

func TestTable_isLost(t *testing.T) {
	d := newTestDriver(t)
	l := take(t, d, "name")
	require.NoError(t, d.exec(t.Context(), "DROP TABLE locker_locks, locker_locks_ttls"))
	require.ErrorIs(t, l.Extend(t.Context(), time.Minute), locker.ErrLost)
	require.ErrorIs(t, l.Release(t.Context()), locker.ErrLost)
	extended := d.ExtendAll(t.Context(), []driver.Claim{l}, time.Minute)
	require.ErrorIs(t, extended[0], locker.ErrLost)
	state, err := d.Inspect(t.Context(), "name")
	require.NoError(t, err)
	assert.Zero(t, state)
	assert.Greater(t, take(t, d, "name").Token(), l.Token())
}

// It is one statement for all.
func TestExtendAll_tellsThoseThatLast(t *testing.T) {
	d := newTestDriver(t)
	counts := d.pool.Config().ConnConfig.Tracer.(*counter)
	a, b, c := take(t, d, "a"), take(t, d, "b"), take(t, d, "c")
	require.EqualValues(t, 1, counts.of(func() { d.ExtendAll(t.Context(), []driver.Claim{c, b, a}, time.Minute) }))
	require.NoError(t, b.Release(t.Context()))
	before := c.Validity()
	errs := d.ExtendAll(t.Context(), []driver.Claim{c, b, a}, time.Hour)
	require.Len(t, errs, 3)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], locker.ErrLost)
	require.NoError(t, errs[2])
	assert.Greater(t, c.Validity(), before)
	state, err := d.Inspect(t.Context(), "a")
	require.NoError(t, err)
	assert.Greater(t, state.Left, time.Minute)
}

func TestOpen_refuses(t *testing.T) {
	const u = "postgres://app:s3cret@localhost/app?"
	harness.RefusesURLs(t, map[string]string{
		u + "ttl=1500ns": "", u + "tabel=locks": "tabel", u + "table=": "empty", u + "sslmode=sometimes": "sslmode", u + "host=/run/postgresql": "folder",
	})
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
	c := newClientOver(t, pool, locker.WithTTL(time.Minute))
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
		_, err := admin.Exec(t.Context(), `SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
			WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'`)
		require.NoError(t, err)
		require.NoError(t, m.Lock(t.Context()), before)
		require.NoError(t, m.Unlock(t.Context()))
	}
}

// A lock costs the statements that docs/backends/postgres.md lists.
func TestCounts(t *testing.T) {
	t.Parallel()
	url := testserver.SharedPostgres(t).URL()
	pool, counts := poolOf(t, url)
	c := newClientOver(t, pool, locker.WithPrefix(prefixOf(t)), locker.WithTTL(time.Minute), locker.WithoutRenewal())
	pair := func(m *locker.Mutex, take func() error) func() {
		return func() {
			require.NoError(t, take())
			require.NoError(t, m.Unlock(t.Context()))
		}
	}
	other := newClient(t, url)
	warm := c.Mutex("warm")
	pair(warm, func() error { return warm.Lock(t.Context()) })() // there is a table
	m := c.Mutex("x")
	lock, try := func() error { return m.Lock(t.Context()) }, func() error { return m.TryLock(t.Context()) }
	assert.EqualValues(t, 2, counts.of(pair(m, lock)), "a new name: make and take, release")
	assert.EqualValues(t, 2, counts.of(pair(m, lock)), "take, release")
	assert.EqualValues(t, 2, counts.of(pair(m, try)), "take, release")
	another := other.Mutex("x")
	pair(another, func() error { return another.Lock(t.Context()) })()
	assert.EqualValues(t, 2, counts.of(pair(m, lock)), "also if another has held it meanwhile")
	require.NoError(t, another.Lock(t.Context()))
	assert.EqualValues(t, 1, counts.of(func() { require.ErrorIs(t, m.TryLock(t.Context()), locker.ErrHeld) }))
	require.NoError(t, another.Unlock(t.Context()))
	require.NoError(t, m.Lock(t.Context()))
	assert.EqualValues(t, 1, counts.of(func() { require.NoError(t, m.Extend(t.Context())) }))
	require.NoError(t, m.Unlock(t.Context()))
}

// Who asks for a held lock changes nothing at the server.
func TestAcquire_ofAHeldLockWritesNothing(t *testing.T) {
	t.Parallel()
	url := testserver.SharedPostgres(t).URL()
	c, other := newClient(t, url), newClient(t, url)
	m := c.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	version := func() string {
		return value[string](t, url, "SELECT ctid::text || xmin::text || xmax::text FROM locker_locks WHERE name = $1", []byte(prefixOf(t)+":x"))
	}
	before := version()
	for range 5 {
		require.ErrorIs(t, other.Mutex("x").TryLock(t.Context()), locker.ErrHeld)
	}
	assert.Equal(t, before, version())
	require.NoError(t, m.Unlock(t.Context()))
}

func TestInspectAtAServer(t *testing.T) {
	t.Parallel()
	s := testserver.Postgres(t)
	execute(t, s.URL(), Schema("locker_locks"))
	harness.Inspect(t, harness.Inspection{
		URL: s.URL(), TTL: time.Second, Left: true, Since: true, LastToken: true, TokenWhenWaited: true, Queue: true,
		IDs: true, TellsHolder: true, TellsMetadata: true,
		Contents: func(t testing.TB) string {
			t.Helper()
			return value[string](t, s.URL(), "SELECT coalesce(string_agg(locks::text, ' ' ORDER BY key), '') FROM (SELECT key, token, version, owner, waited, ARRAY(SELECT owner FROM locker_locks_waiters AS w WHERE w.key = l.key) FROM locker_locks AS l) AS locks")
		},
		Listening: func(n int) bool {
			return value[int](t, s.URL(), "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND state = 'idle'") >= n
		},
		Stop: func() func() { s.Stop(); return s.Continue },
		Kill: s.Kill,
	})
}

// Waiters whose time ends while they are read are there, or not.
func TestInspect_whileWaitersDie(t *testing.T) {
	t.Parallel()
	d := newTestDriver(t)
	take(t, d, "x")
	require.NoError(t, d.exec(t.Context(), `INSERT INTO locker_locks_waiters SELECT int8send(i), key, i, 60000000, ''
		FROM locker_locks, generate_series(1, 2000) AS i WHERE key <> ''`))
	for range 10 {
		require.NoError(t, d.exec(t.Context(), `INSERT INTO locker_locks_clients
			SELECT int8send(i), clock_timestamp() + i * interval '50 us' FROM generate_series(1, 2000) AS i
			ON CONFLICT (client) DO UPDATE SET alive_until = excluded.alive_until`))
		for left := 1; left > 0; {
			state, err := d.Inspect(t.Context(), "x")
			require.NoError(t, err)
			left = len(state.Waiters)
		}
	}
}

// A late write is refused on a pool of pgx, in its transactions, and on a *sql.DB that has the
// pool.
func TestFence_aLateWriteIsRefused(t *testing.T) {
	t.Parallel()
	url := Database(t)
	execute(t, url, `CREATE TABLE orders (id int PRIMARY KEY, token bigint NOT NULL); INSERT INTO orders VALUES (42, 0)`)
	pool, _ := poolOf(t, url)
	db := stdlib.OpenDBFromPool(pool)
	t.Cleanup(func() { _ = db.Close() })
	write := func(on sqlfence.Execer, token uint64) error {
		return sqlfence.Exec(t.Context(), on, "orders/42", token, `UPDATE orders SET token = $1 WHERE id = 42 AND token <= $1`, int64(token))
	}
	both := func(on sqlfence.Execer) {
		require.NoError(t, write(on, 2))
		require.ErrorIs(t, write(on, 1), fence.ErrStale)
	}
	both(db)
	both(Execer(pool))
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		both(Execer(tx))
		return nil
	}))
}

func FuzzOpen(f *testing.F) {
	fuzzurl.Run(f, "postgres", func(_ context.Context, u *driver.URL) (driver.Driver, error) {
		_, err := poolConfig(u)
		return nil, err
	}, "h1:1,[::1]/db?table=a.b&sslmode=disable", "h/x", "h?sslrootcert=x")
}

// A certificate is replaced before it ends. New connections have what the files have by then.
func TestTLS_filesThatWereReplaced(t *testing.T) {
	first, second := testserver.NewCertificates(t), testserver.NewCertificates(t)
	dir := t.TempDir()
	files := testserver.CopyFiles(t, dir, first.CAFile, first.CertFile, first.KeyFile)
	query := url.Values{"sslmode": {"verify-full"}, "sslrootcert": files[:1], "sslcert": files[1:2], "sslkey": files[2:]}
	u, err := driver.ParseURL("postgres://192.0.2.1/app?" + query.Encode())
	require.NoError(t, err)
	config, err := poolConfig(u)
	require.NoError(t, err)
	before := config.ConnConfig.Copy()
	testserver.CopyFiles(t, dir, second.CAFile, second.CertFile, second.KeyFile)
	now := config.ConnConfig.Copy()
	require.NoError(t, config.BeforeConnect(t.Context(), now))
	assert.NotEqual(t, before.TLSConfig.Certificates, now.TLSConfig.Certificates)
	assert.False(t, before.TLSConfig.RootCAs.Equal(now.TLSConfig.RootCAs))
}

var update = flag.Bool("update", false, "write testdata/functions.txt")

// A function that has changed has another name: programs of several releases share a database, and
// each needs its own. Before the release that brings a function, run go test -run TestSchema
// -update.
func TestSchema_aFunctionThatChangesHasANewName(t *testing.T) {
	t.Parallel()
	const golden = "testdata/functions.txt"
	var now strings.Builder
	function := regexp.MustCompile(`(?s)CREATE OR REPLACE FUNCTION public\.(\w+_v\d+)\(.*?\nEND \$locker\$;\n`)
	source, err := os.ReadFile("schema.sql")
	require.NoError(t, err)
	all := function.FindAllStringSubmatch(string(source), -1)
	require.Len(t, all, strings.Count(string(source), "FUNCTION public."))
	for _, f := range all {
		fmt.Fprintf(&now, "%s %x\n", f[1], sha256.Sum256([]byte(f[0])))
	}
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(now.String()), 0o644))
	}
	before, err := os.ReadFile(golden)
	require.NoError(t, err)
	assert.Equal(t, string(before), now.String(), "a function was changed: give it the next version in its name")
}

// PostgreSQL cuts names after 63 bytes: those of functions would lose their versions, and tables
// would be one.
func TestTable_whoseNameIsTooLong(t *testing.T) {
	t.Parallel()
	url := testserver.SharedPostgres(t).URL()
	lock := func(table string) error {
		m := openURL(t, url+"&table="+table).Mutex("x")
		if err := m.Lock(t.Context()); err != nil {
			return err
		}
		return m.Unlock(t.Context())
	}
	require.NoError(t, lock(strings.Repeat("n", 50)))
	require.NoError(t, lock("public.locks%20of%20mine"))
	require.ErrorContains(t, lock(strings.Repeat("n", 51)), "more than 50 bytes")
	require.ErrorContains(t, lock("public."+strings.Repeat("n", 63)), "more than 50 bytes")
}
