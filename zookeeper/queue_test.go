package zookeeper_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

func TestSessions(t *testing.T) {
	t.Parallel()
	sessions(t).Run(t)
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
