package redis_test

import (
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

// A request that never had a connection has taken nothing.
func TestClose_afterAConnectionThatWasRefused(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	s.Kill()
	for name, kind := range clients {
		t.Run(name, func(t *testing.T) {
			c := clientOf(t, connect(t, s.Addr(), kind, func(o *goredis.Options) { o.DialerRetries = 1 }))
			require.Error(t, c.Mutex("x").TryLock(t.Context()))
			start := time.Now()
			require.NoError(t, c.Close())
			assert.Less(t, time.Since(start), 3*time.Second, "Close waits for no release")
		})
	}
}
