//go:build unix

package redis_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/testserver"
)

// The process of a holder is stopped for two fifths of its TTL, at some moment between two renewals: that costs nothing.
func TestPause_ofTwoFifthsOfTheTTLEndsNoHold(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	s := testserver.Redis(t)
	p := startChild(t, "hold", s.Addr(), ttl)
	token := p.Says("held")[0]
	for range 2 {
		time.Sleep(rand.N(ttl / 3))
		p.Stop()
		time.Sleep(2 * ttl / 5)
		p.Continue()
	}
	p.Tell("well?")
	assert.Equal(t, []string{"false", token, "false"}, p.Says("believes"), "lost, token, ErrLost from Unlock")
}

// The server is silent for as long, at some moment between two renewals.
func TestSilence_ofTwoFifthsOfTheTTLEndsNoHold(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	s := testserver.Redis(t)
	m := newClient(t, s.Addr(), locker.WithTTL(ttl)).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	token := m.FencingToken()
	for range 3 {
		time.Sleep(rand.N(ttl / 3))
		s.Stop()
		time.Sleep(2 * ttl / 5)
		s.Continue()
		before := m.Deadline()
		eventually(t, "it is renewed", func() bool { return m.FencingToken() == 0 || m.Deadline().After(before) })
		require.Equal(t, token, m.FencingToken())
	}
	require.NoError(t, m.Unlock(t.Context()))
}
