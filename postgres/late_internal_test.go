package postgres

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testserver"
)

// A take that arrives after its clean-up takes nothing.
func TestRelease_beforeItsTakeArrives(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), testserver.Postgres(t).URL())
	require.NoError(t, err)
	defer pool.Close()
	d := NewDriver(pool, "")
	req := driver.Request{Name: "name", TTL: time.Minute}
	first, err := d.Acquire(t.Context(), req)
	require.NoError(t, err)
	require.NoError(t, first.Release(t.Context()))
	seen := d.seen.recall(key(req.Name)).version

	late := &lease{driver: d, key: key(req.Name), owner: []byte("late"), seen: seen, doubtful: true}
	require.ErrorIs(t, late.Release(t.Context()), locker.ErrLost)
	a, err := d.take(t.Context(), late, req, time.Now())
	require.NoError(t, err)
	assert.False(t, a.granted)
	assert.True(t, a.free)

	var granted, queued bool
	require.NoError(t, d.row(t.Context(), d.sql.ask, late.key, late.seen, late.owner, req.TTL.Microseconds(), []byte(""), int64(5e6)).
		Scan(&granted, &queued, new(int64), new(int64), new(int64), new(int64), new([]byte), new([]byte)))
	assert.False(t, granted)
	assert.False(t, queued, "nor is there a place in the queue")

	next, err := d.Acquire(t.Context(), req)
	require.NoError(t, err)
	require.ErrorIs(t, late.Release(t.Context()), locker.ErrLost)
	assert.NoError(t, next.Extend(t.Context(), req.TTL), "it was not another's to release")
}

// A proxy may send an error without a code, which is no answer to the statement.
func TestFinal_ofAnErrorWithoutACode(t *testing.T) {
	assert.False(t, final(&pgconn.PgError{Severity: "ERROR", Message: "no server"}))
}
