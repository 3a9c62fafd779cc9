package zookeeper_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/shares"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/zookeeper"
)

func TestSessions(t *testing.T) {
	t.Parallel()
	sessions(t).Run(t)
}

func TestExtendAll(t *testing.T) {
	t.Parallel()
	b := sessions(t)
	const ttl = 20 * time.Second
	d, err := zookeeper.NewDriver([]string{b.Addr}, zookeeper.Tick(serverTick))
	require.NoError(t, err)
	defer func() { _ = d.Close() }()
	b.ExtendsAll(t, d.(claims.Driver), ttl, space(t))
}

// The servers remove empty containers, and the next number begins anew. Tokens do not.
func TestContainers_areReapedAndTokensRise(t *testing.T) {
	t.Parallel()
	s := testserver.ZooKeeper(t, testserver.ZooKeeperReaping())
	look := direct(t, s.Addr())
	m := openURL(t, s.URL(), "ttl=30s").Mutex("x")
	last := uint64(0)
	for range 3 {
		require.NoError(t, m.Lock(t.Context()))
		assert.Equal(t, "0000000000", number(queue(t, look, "x")[0]))
		assert.Greater(t, m.FencingToken(), last)
		last = m.FencingToken()
		require.NoError(t, m.Unlock(t.Context()))
		eventually(t, "nothing is left at all", func() bool {
			found, _, err := look.Exists("/" + space(t))
			require.NoError(t, err)
			return !found
		})
	}
}

func TestShares(t *testing.T) {
	t.Parallel()
	addr := testserver.SharedZooKeeper(t).Addr()
	shares.Run(t, func(t testing.TB) shares.Backend {
		t.Helper()
		look := direct(t, addr)
		return shares.Backend{
			Addr: addr, Name: space(t) + ":x", TTL: 20 * time.Second,
			Open: func(t testing.TB, addr string) shares.Driver {
				d, err := zookeeper.NewDriver([]string{addr}, zookeeper.Tick(serverTick))
				require.NoError(t, err)
				t.Cleanup(func() { _ = d.Close() })
				return d.(shares.Driver)
			},
			Queue: func(t testing.TB) []string { return queue(t, look, "x") },
		}
	})
}
