package postgres_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/sql/postgres"
)

// A lock costs the statements that docs/backends/postgres.md lists.
func TestCounts(t *testing.T) {
	t.Parallel()
	url := testserver.SharedPostgres(t).URL()
	pool, counts := poolOf(t, url)
	c, err := postgres.New(pool, locker.WithPrefix(prefixOf(t)), locker.WithTTL(time.Minute), locker.WithoutRenewal())
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
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

// ExtendAll is one statement for all.
func TestExtendAll_isOneStatement(t *testing.T) {
	t.Parallel()
	pool, counts := poolOf(t, testserver.SharedPostgres(t).URL())
	d := newDriver(t, pool, "")
	leases := make([]driver.Lease, 50)
	for i := range leases {
		var err error
		leases[i], err = claims.Take(t.Context(), d, driver.Request{Name: prefixOf(t) + string(rune('0'+i)), TTL: time.Minute})
		require.NoError(t, err)
	}
	assert.EqualValues(t, 1, counts.of(func() {
		for _, err := range d.ExtendAll(t.Context(), leases, time.Minute) {
			require.NoError(t, err)
		}
	}))
	for _, l := range leases {
		require.NoError(t, l.Release(t.Context()))
	}
}
