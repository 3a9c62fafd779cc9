package redis_test

import (
	"testing"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
)

func TestRouter_eachNameIsLockedWhereEverybodyLooksForIt(t *testing.T) {
	t.Parallel()
	harness.RedisRouter(t, func(addr string, opts ...locker.Option) *locker.Client {
		return newClient(t, addr, opts...)
	})
}
