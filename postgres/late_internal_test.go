package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testserver"
)

// A take that arrives after its clean-up takes nothing.
func TestRelease_beforeItsTakeArrives(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), testserver.Postgres(t).URL())
	require.NoError(t, err)
	defer pool.Close()
	d := NewDriver(pool, "")
	req := driver.Request{Name: "name", TTL: time.Minute}
	first, err := claims.Take(t.Context(), d, req)
	require.NoError(t, err)
	require.NoError(t, first.Release(t.Context()))
	seen := d.seen.recall(key(req.Name)).version

	late := &claim{Request: req, of: d, key: key(req.Name), owner: []byte("late"), seen: seen, known: true, doubtful: true}
	require.ErrorIs(t, late.Release(t.Context()), locker.ErrLost)
	for _, ask := range []func(context.Context) (answer, error){late.take, late.join} {
		a, err := ask(t.Context())
		require.NoError(t, err)
		assert.False(t, a.granted)
		assert.False(t, a.queued)
	}

	next, err := claims.Take(t.Context(), d, req)
	require.NoError(t, err)
	require.ErrorIs(t, late.Release(t.Context()), locker.ErrLost)
	assert.NoError(t, next.Extend(t.Context(), req.TTL), "it was not another's to release")
}
