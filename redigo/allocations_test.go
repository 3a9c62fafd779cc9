//go:build !race

package redigo_test

import (
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/interrupt"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/redigo"
)

func TestAllocations_ofAPair(t *testing.T) {
	harness.RedisAllocations(t, 22, func(dial interrupt.Dialer) *locker.Client {
		connect, option := redigo.Interruptible(dial)
		k := kind{[]redis.DialOption{connect}, []redigo.DriverOption{option}}
		return k.client(t, k.pool(t, ""))
	})
}
