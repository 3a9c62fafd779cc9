package zookeeper_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A session has ended at the server while the network was away, and nobody knows. The next to come needs another, and gets it.
func TestTryLock_afterAnEndThatNobodyHasSeen(t *testing.T) {
	t.Parallel()
	for name, take := range takes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 3 * time.Second // there is half of it for another session
			f := newFaulty(t, ttl)
			m := f.client.Mutex("x")
			require.NoError(t, m.Lock(t.Context()))
			session := sessionOf(t, f.direct, queue(t, f.direct, "x")[0])
			require.NoError(t, m.Unlock(t.Context()))
			f.proxy.Sever()
			killed := time.Now()
			time.Sleep(2 * ttl)
			f.proxy.Restore()
			require.NoError(t, take(m, t.Context()), "%v after its session", time.Since(killed))
			require.NotEqual(t, session, sessionOf(t, f.direct, queue(t, f.direct, "x")[0]))
			require.NoError(t, m.Unlock(t.Context()))
		})
	}
}
