package etcd_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/testserver"
)

// The server is silent for two fifths of a holder's TTL, at some moment between two renewals: that costs nothing.
func TestSilence_ofTwoFifthsOfTheTTLEndsNoHold(t *testing.T) {
	t.Parallel()
	const ttl = 10 * time.Second
	s := testserver.Etcd(t)
	m := openURL(t, s.URL()+"?ttl="+ttl.String()).Mutex("x")
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
