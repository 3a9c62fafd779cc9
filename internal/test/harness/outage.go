package harness

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

// Outage tests that a Lock rides out half a TTL, on every backend, and then returns the client
// library's error: also the first Lock of a Client. kill ends the servers at url.
func Outage(t *testing.T, url string, kill func()) {
	const ttl = 6 * time.Second
	c, err := locker.Open(t.Context(), url, locker.WithTTL(ttl))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	m := c.Mutex("outage")
	patience.Until(t, "there is a connection", func() bool { return m.Lock(t.Context()) == nil && m.Unlock(t.Context()) == nil })
	kill()

	began := time.Now()
	wantOwn(t, "lock", m.Lock(t.Context()))
	assert.GreaterOrEqual(t, time.Since(began), ttl/2, "it waits for a short outage to end")

	first, err := locker.Open(t.Context(), url, locker.WithTTL(ttl))
	require.NoError(t, err)
	t.Cleanup(func() { _ = first.Close() })
	began = time.Now()
	wantOwn(t, "lock", first.Mutex("outage").Lock(t.Context()))
	assert.GreaterOrEqual(t, time.Since(began), ttl/2, "a first Lock waits, too")

	ctx, cancel := context.WithTimeout(t.Context(), ttl/6)
	defer cancel()
	err = m.Lock(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, locker.ErrHeld)
	require.Error(t, m.TryLock(t.Context()))
}
