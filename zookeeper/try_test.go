package zookeeper_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// A session has ended at the server while the network was away, and nobody knows. The next to come
// needs another, and gets it.
func TestTryLock_afterAnEndThatNobodyHasSeen(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	look := direct(t, s.Addr())
	for name, take := range map[string]func(*locker.Mutex, context.Context) error{
		"Lock": (*locker.Mutex).Lock, "TryLock": (*locker.Mutex).TryLock,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 8 * time.Second // there is half of it for another session
			proxy := testserver.NewProxy(t, s.Addr())
			m := openURL(t, "zookeeper://"+proxy.Addr(), "", locker.WithTTL(ttl)).Mutex("x")
			require.NoError(t, m.Lock(t.Context()))
			session := sessionOf(t, look, queue(t, look, "x")[0])
			require.NoError(t, m.Unlock(t.Context()))
			proxy.Sever()
			time.Sleep(2 * ttl)
			proxy.Restore()
			require.NoError(t, take(m, t.Context()))
			require.NotEqual(t, session, sessionOf(t, look, queue(t, look, "x")[0]))
			require.NoError(t, m.Unlock(t.Context()))
		})
	}
}
