//go:build unix

package harness

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/child"
	"github.com/go-locker/locker/internal/test/testwait"
)

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
