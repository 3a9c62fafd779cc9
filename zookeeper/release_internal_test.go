package zookeeper

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
)

// Two at once, as an Unlock whose reply is late and the clean-up: it is the lease's own deletion
// that either finds.
func TestRelease_twiceAtOnce(t *testing.T) {
	t.Parallel()
	const ttl = 30 * time.Second
	d := driverOf(t)
	name := fresh()
	for range 20 {
		l, err := claims.Take(t.Context(), d, driver.Request{Name: name, TTL: ttl})
		require.NoError(t, err)
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() { assert.NoError(t, l.Release(t.Context())) })
		}
		both.Wait()
	}
}
