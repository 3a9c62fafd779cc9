//go:build unix

package zookeeper_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/child"
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

// A new leader counts all sessions from its own beginning: it does not know how much of them was used up. The lock of a holder
// that was killed is free one TTL after that, and not after its death.
func TestKilled_whoseLeaderIsKilledTooHoldsForLonger(t *testing.T) {
	t.Parallel()
	const ttl = 4 * time.Second
	g := testserver.ZooKeeperEnsemble(t, 3)
	for range 3 { // a busy machine may be too late to kill the leader
		p := child.StartHolder(t, "TestHolder", g.URL()+"?tick=100ms&ttl="+ttl.String(), "x")
		p.Ask()
		older := p.Knows()
		require.NotZero(t, older.Token)
		p.Kill()
		killed := time.Now()
		time.Sleep(ttl * 3 / 4)
		old := g.Leader()
		old.Kill()
		second := openURL(t, g.URL(), "ttl=10s").Mutex("x")
		eventually(t, "another has the lock", func() bool { return second.Lock(withTimeout(t, patient)) == nil })
		took := time.Since(killed)
		assert.Greater(t, second.FencingToken(), older.Token)
		require.NoError(t, second.Unlock(t.Context()))
		old.Restart()
		t.Logf("free %v after the holder's death", took)
		if took > ttl*3/2 {
			return
		}
	}
	t.Error("free as early as with one leader")
}
