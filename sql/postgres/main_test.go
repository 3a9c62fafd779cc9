package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/fence/sqlfence"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/freshdb"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestMain(m *testing.M) {
	harness.Serve()
	goleak.VerifyTestMain(testserver.Tests(m))
}

var (
	eventually  = testwait.Patience(20 * time.Second).Until
	await       = testwait.Patience(20 * time.Second).Result
	async       = testwait.Go
	withTimeout = testwait.Context
)

// Database makes a database on the server that the tests share, and returns its URL.
func Database(t testing.TB) (url string) {
	t.Helper()
	return freshdb.Of[sqlfence.Postgres](t).DSN
}

// newTestDriver makes a Driver that has a database for itself.
func newTestDriver(t *testing.T, changes ...func(*pgxpool.Config)) *backend {
	t.Helper()
	return newDriverOf(t, Database(t), changes...)
}

func newDriverOf(t *testing.T, url string, changes ...func(*pgxpool.Config)) *backend {
	t.Helper()
	pool, _ := poolOf(t, url, changes...)
	d := newDriver(pool, "")
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// exec runs a statement of the tests' own.
func (d *backend) exec(ctx context.Context, sql string, args ...any) error {
	_, err := d.pool.Exec(ctx, sql, append([]any{pgx.QueryExecModeExec}, args...)...)
	return err
}

// waiter returns a claim that joins the queue if the lock is held.
func waiter(d *backend, name string) *claim {
	return d.Claim(driver.Request{Name: name, TTL: time.Minute, Wake: func() {}}).(*claim)
}

func take(t *testing.T, d *backend, name string) *claim {
	t.Helper()
	c, err := claims.Take(t.Context(), d, driver.Request{Name: name, TTL: time.Minute})
	require.NoError(t, err)
	return c.(*claim)
}

// queued returns a claim that has joined the queue.
func queued(t *testing.T, d *backend, name string) *claim {
	t.Helper()
	c := waiter(d, name)
	_, err := c.Ask(t.Context())
	require.ErrorIs(t, err, driver.ErrHeld)
	return c
}

func rowsOf(t *testing.T, d *backend) (n int) {
	t.Helper()
	require.NoError(t, d.pool.QueryRow(t.Context(), "SELECT count(*) FROM locker_locks").Scan(&n))
	return n
}

// poolOf makes a pool that counts its statements.
func poolOf(t testing.TB, url string, changes ...func(*pgxpool.Config)) (*pgxpool.Pool, *counter) {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	counts := &counter{}
	config.ConnConfig.Tracer = counts
	for _, change := range changes {
		change(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool, counts
}

// newClientOver makes a Client over a pool.
func newClientOver(t testing.TB, pool *pgxpool.Pool, opts ...locker.Option) *locker.Client {
	t.Helper()
	c, err := New(pool, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// newClient makes a Client of names that no other test has.
func newClient(t testing.TB, url string, opts ...locker.Option) *locker.Client {
	t.Helper()
	return openURL(t, url, append([]locker.Option{locker.WithPrefix(prefixOf(t))}, opts...)...)
}

// openURL makes a Client by its URL, which ends with a query.
func openURL(t testing.TB, url string, opts ...locker.Option) *locker.Client {
	t.Helper()
	return testwait.Closed(locker.Open(t.Context(), url, append([]locker.Option{locker.WithTTL(20 * time.Second)}, opts...)...))(t)
}

// counter counts statements.
type counter struct{ n atomic.Int64 }

func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if !strings.HasPrefix(data.SQL, "LISTEN") {
		c.n.Add(1)
	}
	return ctx
}

func (c *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// of returns how many statements f makes.
func (c *counter) of(f func()) int64 {
	before := c.n.Load()
	f()
	return c.n.Load() - before
}

// session makes a connection of the tests' own.
func session(t testing.TB, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// execute runs statements of the tests' own: several if there are no arguments.
func execute(t testing.TB, url, statements string, args ...any) {
	t.Helper()
	_, err := session(t, url).Exec(t.Context(), statements, args...)
	require.NoError(t, err)
}

// value returns what a query of the tests' own has found, or the zero value for a statement without a
// result, also when the context of t has ended.
func value[T any](t conformance.TB, url, query string, args ...any) (v T) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 20*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, url)
	if err == nil {
		defer func() { _ = conn.Close(ctx) }()
		err = conn.QueryRow(ctx, query, args...).Scan(&v)
	}
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func prefixOf(t testing.TB) string { t.Helper(); return harness.Space(t) }

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
