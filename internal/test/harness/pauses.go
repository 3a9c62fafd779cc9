//go:build unix

package harness

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/child"
	"github.com/go-locker/locker/internal/test/testwait"
)

// Pauses stops processes somewhere between two contacts with their session, at a URL with a TTL of 2 s, past that TTL,
// and another takes over. The first wakes, and knows before it does anything else.
func (b Sessions) Pauses(t *testing.T, url string) {
	for i := range 4 {
		t.Run(fmt.Sprint("process ", i), func(t *testing.T) {
			t.Parallel()
			name := fmt.Sprint("x", i)
			p := child.StartHolder(t, url, name)
			p.Ask()
			older := p.Knows()
			require.NotZero(t, older.Token)
			require.False(t, older.Lost)
			gone := b.Vanishes(t, b.Queue(t, name)[0])

			time.Sleep(rand.N(700 * time.Millisecond))
			p.Stop()
			second := b.open(t, 10*time.Second).Mutex(name)
			require.NoError(t, second.Lock(testwait.Context(t, patient)))
			assert.Greater(t, second.FencingToken(), older.Token)
			at := <-gone

			p.Ask()
			p.Continue()
			knows := p.Knows()
			assert.Zero(t, knows.Token)
			assert.True(t, knows.Lost, "Extend says ErrLost")
			assert.Less(t, knows.Deadline, at, "its deadline came before the server ended its session")
			assert.True(t, p.UnlocksLost(), "Lost has fired, and Unlock says ErrLost")
			require.NoError(t, second.Extend(t.Context()), "the first has left the second's lock alone")
			require.NoError(t, second.Unlock(t.Context()))
		})
	}
}

// LosesItsLeaderAfterAHolder was killed: the new leader counts all sessions from its own beginning, for it does not know how
// much of them was used up. The lock of a holder that was killed is free one TTL after that, and not after its death.
func (g Majority[S]) LosesItsLeaderAfterAHolder(t *testing.T) {
	const ttl = 4 * time.Second
	for range 3 { // a busy machine may be too late to kill the leader
		p := child.StartHolder(t, g.URL+"ttl="+ttl.String(), "x")
		p.Ask()
		older := p.Knows()
		require.NotZero(t, older.Token)
		p.Kill()
		killed := time.Now()
		time.Sleep(ttl * 3 / 4)
		old := g.Leader()
		old.Kill()
		second := g.open(t, 10*time.Second).Mutex("x")
		patience.Until(t, "another has the lock", func() bool { return second.Lock(testwait.Context(t, patient)) == nil })
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
