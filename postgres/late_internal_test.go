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

// The reply to a take was lost. Asked again, the server has granted the lock to the same owner.
func TestAsk_afterATakeWhoseReplyWasLost(t *testing.T) {
	pool, err := pgxpool.New(t.Context(), testserver.Postgres(t).URL())
	require.NoError(t, err)
	defer pool.Close()
	d := NewDriver(pool, "")
	c := d.Claim(driver.Request{Name: "name", TTL: time.Minute}).(*claim)
	_, err = c.Ask(t.Context())
	require.NoError(t, err)
	token := c.token
	c.token, c.doubtful = 0, true
	_, err = c.Ask(t.Context())
	require.NoError(t, err, "it is not another's")
	assert.Equal(t, token, c.token)
	require.NoError(t, c.Release(t.Context()))
}

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
