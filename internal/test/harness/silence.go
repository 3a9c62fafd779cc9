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
	if err := m.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	token := m.FencingToken()
	times := 1
	if testwait.Thorough() {
		times = 3
	}
	for range times {
		time.Sleep(rand.N(SilenceTTL / 3))
		silence()
		time.Sleep(2 * SilenceTTL / 5)
		resume()
		before := m.Hold().Deadline()
		testwait.Patience(2*SilenceTTL).Until(t, "it is renewed, or lost", func() bool {
			return m.FencingToken() == 0 || m.Hold().Deadline().After(before)
		})
		if now := m.FencingToken(); now != token {
			t.Fatalf("the token was %d, and after the silence it is %d", token, now)
		}
	}
	if err := m.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// OutlivesSlowness has m, a Mutex of SilenceTTL that is renewed over network, hold though a round
// trip comes to take an eighth of that, and connections have to be made anew: docs/limits.md has
// what a link may take.
func OutlivesSlowness(t *testing.T, m *locker.Mutex, network *testserver.Proxy) {
	t.Helper()
	if err := m.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	token, first := m.FencingToken(), m.Hold().Deadline()
	network.Delay(SilenceTTL / 16)
	defer network.Delay(0)
	network.ResetConns()
	testwait.Patience(3*SilenceTTL).Until(t, "it is renewed again and again, or lost", func() bool {
		return m.FencingToken() == 0 || m.Hold().Deadline().After(first.Add(2*SilenceTTL))
	})
	if now := m.FencingToken(); now != token {
		t.Fatalf("the token was %d, and now it is %d", token, now)
	}
	if err := m.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

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
