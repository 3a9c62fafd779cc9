package harness

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// SilenceTTL is the TTL of a hold that is put through [OutlivesSilence]: a sixth of it is more than a busy machine takes.
const SilenceTTL = 10 * time.Second

// OutlivesSilence has m, a Mutex of SilenceTTL that is renewed, hold while its servers are silent for two fifths of
// that, again and again, each time from some moment between two renewals. That must not cost the hold: it is what
// docs/limits.md has people size TTLs by.
func OutlivesSilence(t *testing.T, m *locker.Mutex, silence, resume func()) {
	t.Helper()
	h, err := m.Acquire(t.Context())
	require.NoError(t, err)
	times := 1
	if testwait.Thorough() {
		times = 3
	}
	for range times {
		time.Sleep(rand.N(SilenceTTL / 3))
		silence()
		time.Sleep(2 * SilenceTTL / 5)
		resume()
		renewed(t, h, h.Deadline(), 2*SilenceTTL)
	}
	require.NoError(t, h.Unlock(t.Context()))
}

// renewed waits until h lasts beyond a time. It must not be lost.
func renewed(t *testing.T, h *locker.Hold, beyond time.Time, limit time.Duration) {
	t.Helper()
	testwait.Patience(limit).Until(t, "it is renewed, or lost", func() bool {
		return h.Err() != nil || h.Deadline().After(beyond)
	})
	require.NoError(t, h.Err())
}

// OutlivesSlowness has m, a Mutex of SilenceTTL that is renewed over network, hold though a round
// trip comes to take an eighth of that, and connections have to be made anew: docs/limits.md has
// what a link may take.
func OutlivesSlowness(t *testing.T, m *locker.Mutex, network *testserver.Proxy) {
	t.Helper()
	h, err := m.Acquire(t.Context())
	require.NoError(t, err)
	network.Delay(SilenceTTL / 16)
	defer network.Delay(0)
	network.ResetConns()
	renewed(t, h, h.Deadline().Add(2*SilenceTTL), 3*SilenceTTL) // again and again
	require.NoError(t, h.Unlock(t.Context()))
}

// Outage tests that a Lock rides out half a TTL, on every backend, and then returns the client
// library's error: also the first Lock of a Client. kill ends the servers at url.
func Outage(t *testing.T, url string, kill func()) {
	const ttl = 6 * time.Second
	c := testwait.Closed(locker.Open(t.Context(), url, locker.WithTTL(ttl)))(t)
	m := c.Mutex("outage")
	patience.Until(t, "there is a connection", func() bool { return m.Lock(t.Context()) == nil && m.Unlock(t.Context()) == nil })
	kill()

	began := time.Now()
	wantOwn(t, "lock", m.Lock(t.Context()))
	assert.GreaterOrEqual(t, time.Since(began), ttl/2, "it waits for a short outage to end")

	first := testwait.Closed(locker.Open(t.Context(), url, locker.WithTTL(ttl)))(t)
	began = time.Now()
	wantOwn(t, "lock", first.Mutex("outage").Lock(t.Context()))
	assert.GreaterOrEqual(t, time.Since(began), ttl/2, "a first Lock waits, too")

	ctx := testwait.Context(t, ttl/6)
	err := m.Lock(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, locker.ErrHeld)
	require.Error(t, m.TryLock(t.Context()))
}
