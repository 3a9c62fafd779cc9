//go:build !race

package redis_test

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
)

// There are four more on a real socket: go-redis sees by them whether a connection that was idle is
// still open.
func TestAllocations_ofAPair(t *testing.T) {
	harness.RedisAllocations(t, 22, func(dial harness.Connector) *locker.Client {
		return clientOf(t, connect(t, "", func(o *goredis.Options) {
			o.Protocol, o.DisableIdentity, o.PoolSize, o.Dialer = 2, true, 1, dial
			o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
		}))
	})
}
