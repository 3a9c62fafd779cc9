//go:build unix

package etcd_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/child"
	"github.com/go-locker/locker/internal/harness"
	"github.com/go-locker/locker/internal/testserver"
)

func TestHolder(t *testing.T) { child.Hold(t) }

// A process is stopped somewhere between two keepalives, past its TTL, and another takes over. The first wakes, and
// knows before it does anything else.
func TestPause_whoWakesAfterItsTTLKnowsThatItHasLost(t *testing.T) {
	s := testserver.Etcd(t)
	direct := connect(t, s.Addr())
	for i := range 4 {
		t.Run(fmt.Sprint("process ", i), func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprint("x", i)
			p := child.StartHolder(t, "TestHolder", s.URL()+"?ttl=2s", name)
			p.Ask()
			older := p.Knows()
			require.NotZero(t, older.Token)
			require.False(t, older.Lost)
			gone := vanished(t, direct, queue(t, direct, name)[0])

			time.Sleep(rand.N(700 * time.Millisecond))
			p.Stop()
			second := clientOf(t, direct, locker.WithTTL(10*time.Second)).Mutex(name)
			require.NoError(t, second.Lock(withTimeout(t, patient)))
			assert.Greater(t, second.FencingToken(), older.Token)
			at := <-gone

			p.Ask()
			p.Continue()
			knows := p.Knows()
			assert.Zero(t, knows.Token)
			assert.True(t, knows.Lost, "Extend says ErrLost")
			assert.Less(t, knows.Deadline, at, "its deadline came before the server removed the key")
			assert.True(t, p.UnlocksLost(), "Lost has fired, and Unlock says ErrLost")
			require.NoError(t, second.Extend(t.Context()), "the first has left the second's lock alone")
			require.NoError(t, second.Unlock(t.Context()))
		})
	}
}

func TestKilled_whoseLeaderIsKilledTooHoldsForLonger(t *testing.T) {
	t.Parallel()
	g := testserver.EtcdCluster(t, 3)
	harness.LeaderDiesToo(t, g.URL()+"?ttl="+harness.LeaderTTL.String(), g.Leader,
		func() *locker.Client { return openURL(t, g.URL()+"?ttl=10s") })
}
