package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/sql/postgres"
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

// poolOf makes a pool that counts its statements.
func poolOf(t testing.TB, url string) (*pgxpool.Pool, *counter) {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	require.NoError(t, err)
	counts := &counter{}
	config.ConnConfig.Tracer = counts
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool, counts
}

// newClient makes a Client on a pool of its own, of names that no other test has.
func newClient(t testing.TB, url string, opts ...locker.Option) *locker.Client {
	t.Helper()
	pool, _ := poolOf(t, url)
	c, err := postgres.New(pool, append([]locker.Option{locker.WithPrefix(harness.Space(t)), locker.WithTTL(20 * time.Second)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// openURL makes a Client by its URL, which ends with a query.
func openURL(t testing.TB, url string, opts ...locker.Option) *locker.Client {
	t.Helper()
	c, err := locker.Open(t.Context(), url, append([]locker.Option{locker.WithTTL(20 * time.Second)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
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

// execute runs a statement of the tests' own.
func execute(t testing.TB, url, statement string, args ...any) {
	t.Helper()
	_, err := session(t, url).Exec(t.Context(), statement, args...)
	require.NoError(t, err)
}

// value returns what a query of the tests' own has found.
func value[T any](t testing.TB, url, query string, args ...any) (v T) {
	t.Helper()
	conn := session(t, url)
	defer func() { require.NoError(t, conn.Close(t.Context())) }() // it is asked often
	require.NoError(t, conn.QueryRow(t.Context(), query, args...).Scan(&v))
	return v
}

func prefixOf(t testing.TB) string { t.Helper(); return harness.Space(t) }

// script runs several statements.
func script(t testing.TB, url, statements string) {
	t.Helper()
	_, err := session(t, url).PgConn().Exec(t.Context(), statements).ReadAll()
	require.NoError(t, err)
}

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
