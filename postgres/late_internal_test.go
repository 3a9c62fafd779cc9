package postgres

import (
	"testing"
	"time"

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
	seen, err := d.look(t.Context(), key(req.Name), req.Name)
	require.NoError(t, err)

	late := &lease{driver: d, key: key(req.Name), owner: []byte("late"), seen: seen}
	require.ErrorIs(t, late.Release(t.Context()), locker.ErrLost)
	l, err := d.take(t.Context(), late, req, time.Now())
	require.ErrorIs(t, err, locker.ErrHeld)
	assert.Nil(t, l)

	next, err := d.Acquire(t.Context(), req)
	require.NoError(t, err)
	require.ErrorIs(t, late.Release(t.Context()), locker.ErrLost)
	assert.NoError(t, next.Extend(t.Context(), req.TTL), "it was not another's to release")
}
