//go:build !race

package redis_test

import (
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/interrupt"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/redis"
)

// There are four more on a real socket: go-redis sees by them whether a connection that was idle is
// still open.
func TestAllocations_ofAPair(t *testing.T) {
	for name, most := range map[string]float64{"by the caller": 20, "by another goroutine": 22} {
		t.Run(name, func(t *testing.T) {
			harness.RedisAllocations(t, most, func(dial interrupt.Dialer) *locker.Client {
				o := &goredis.Options{
					Protocol: 2, DisableIdentity: true, PoolSize: 1, Dialer: dial,
					MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
				}
				opts := []redis.DriverOption{redis.Interruptible(o)}
				if name != "by the caller" {
					opts = nil
				}
				rdb := goredis.NewClient(o)
				t.Cleanup(func() { _ = rdb.Close() })
				c, err := locker.New(driverOf(t, rdb, opts...))
				require.NoError(t, err)
				t.Cleanup(func() { _ = c.Close() })
				return c
			})
		})
	}
}
