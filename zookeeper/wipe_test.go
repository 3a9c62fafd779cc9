package zookeeper_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

// A server that has lost its data counts its transactions anew: that tokens do not rise is as documented, and so is what
// helps.
func TestWipe_tokensRiseOnlyWithATokenBase(t *testing.T) {
	testwait.OnlyNightly(t, "the suite shows that tokens do not rise then, and the core's tests what a token base does")
	t.Parallel()
	s := testserver.ZooKeeper(t)
	token := func(c *locker.Client) (token uint64) {
		m := c.Mutex("x")
		eventually(t, "it is locked", func() bool {
			if m.Lock(withTimeout(t, patient)) != nil {
				return false
			}
			token = m.FencingToken()
			return m.Unlock(t.Context()) == nil && token > 0
		})
		return token
	}
	before := openURL(t, s.URL(), "ttl=2s")
	var last uint64
	for range 20 {
		last = token(before)
	}
	require.NoError(t, before.Close())
	s.Kill()
	s.Wipe()
	s.Restart()
	assert.LessOrEqual(t, token(openURL(t, s.URL(), "ttl=2s")), last)
	based := openURL(t, s.URL(), "ttl=2s", locker.WithTokenBase(last))
	first := token(based)
	assert.Greater(t, first, last)
	assert.Greater(t, token(based), first)
}
