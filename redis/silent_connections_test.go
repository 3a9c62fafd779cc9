package redis_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// Two connections went silent, as behind a balancer that has forgotten them. The lock is free, and
// the server reachable by others.
func TestSilentConnections_keepNoShortLockFromBeingSent(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	p := testserver.NewProxy(t, s.Addr())
	rdb := connect(t, p.Addr(), func(o *goredis.Options) { o.ReadTimeout = time.Minute })
	loadScripts(t, connect(t, s.Addr()))
	c := clientOf(t, rdb, locker.WithTTL(2*time.Minute))
	warm(t, c)
	p.HoldRequests(true)
	ctx, cancel := context.WithCancel(t.Context())
	var hanging sync.WaitGroup
	onTheWay := 0
	for i := range 2 {
		hanging.Go(func() {
			assert.ErrorIs(t, c.Mutex(fmt.Sprint("hangs", i)).Lock(ctx), context.Canceled)
		})
		before := onTheWay
		eventually(t, "its request is on its way", func() bool { onTheWay, _ = p.Held(); return onTheWay > before })
	}
	p.HoldRequests(false) // what is on its way stays there
	m := c.Mutex("other")
	tries := 1
	for ; m.Lock(withTimeout(t, 10*time.Millisecond)) != nil; tries++ {
		require.Less(t, tries, 100, "none of these was granted within its 10 ms")
	}
	t.Log("granted at try", tries)
	require.NoError(t, m.Unlock(withTimeout(t, 10*time.Second)))
	cancel()
	hanging.Wait()
	p.ReleaseRequests()
}
