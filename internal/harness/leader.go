//go:build unix

package harness

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/child"
	"github.com/go-locker/locker/internal/testwait"
)

// LeaderTTL is that of the holder's URL in [LeaderDiesToo].
const LeaderTTL = 4 * time.Second

// LeaderDiesToo kills a holder of url, a process that runs TestHolder, and, before its TTL is over, the leader of the cluster. The new
// one counts all sessions from its own beginning: it does not know how much of them was used up. So the lock is free one TTL after
// that, and not after the holder's death. next is called then, for a Client that takes it.
func LeaderDiesToo[S interface {
	Kill()
	Restart()
}](t *testing.T, url string, leader func() S, next func() *locker.Client) {
	t.Helper()
	const patient = testwait.Patience(time.Minute)
	for range 3 { // a busy machine may be too late to kill the leader
		p := child.StartHolder(t, "TestHolder", url, "x")
		p.Ask()
		older := p.Knows()
		require.NotZero(t, older.Token)
		p.Kill()
		killed := time.Now()
		time.Sleep(LeaderTTL * 3 / 4)
		old := leader()
		old.Kill()
		second := next().Mutex("x")
		patient.Until(t, "another has the lock", func() bool {
			return second.Lock(testwait.Context(t, time.Duration(patient))) == nil
		})
		took := time.Since(killed)
		assert.Greater(t, second.FencingToken(), older.Token)
		require.NoError(t, second.Unlock(t.Context()))
		old.Restart()
		t.Logf("free %v after the holder's death", took)
		if took > LeaderTTL*3/2 {
			return
		}
	}
	t.Error("free as early as with one leader")
}
