//go:build unix

package zookeeper_test

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

// A process is stopped somewhere between two contacts, past its TTL, and another takes over. The first wakes, and
// knows before it does anything else.
func TestPause_whoWakesAfterItsTTLKnowsThatItHasLost(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t)
	cli := direct(t, s.Addr())
	for i := range 4 {
		t.Run(fmt.Sprint("process ", i), func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprint("x", i)
			p := child.StartHolder(t, "TestHolder", s.URL()+"?tick=100ms&ttl=2s", name)
			p.Ask()
			older := p.Knows()
			require.NotZero(t, older.Token)
			require.False(t, older.Lost)
			there, _, gone, err := cli.ExistsW(queue(t, cli, name)[0])
			require.NoError(t, err)
			require.True(t, there)

			time.Sleep(rand.N(700 * time.Millisecond))
			p.Stop()
			second := openURL(t, s.URL(), "ttl=10s").Mutex(name)
			waiting := async(func() error { return second.Lock(withTimeout(t, patient)) })
			<-gone
			at := time.Now()
			require.NoError(t, await(t, waiting))
			assert.Greater(t, second.FencingToken(), older.Token)

			p.Ask()
			p.Continue()
			knows := p.Knows()
			assert.Zero(t, knows.Token)
			assert.True(t, knows.Lost, "Extend says ErrLost")
			assert.Less(t, knows.Deadline, at, "its deadline came before the server removed the node")
			assert.True(t, p.UnlocksLost(), "Lost has fired, and Unlock says ErrLost")
			require.NoError(t, second.Extend(t.Context()), "the first has left the second's lock alone")
			require.NoError(t, second.Unlock(t.Context()))
		})
	}
}

func TestKilled_whoseLeaderIsKilledTooHoldsForLonger(t *testing.T) {
	t.Parallel()
	g := testserver.ZooKeeperEnsemble(t, 3)
	harness.LeaderDiesToo(t, g.URL()+"?tick=100ms&ttl="+harness.LeaderTTL.String(), g.Leader,
		func() *locker.Client { return openURL(t, g.URL(), "ttl=10s") })
}
