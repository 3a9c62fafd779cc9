//go:build !race

package redigo_test

import (
	"context"
	"testing"

	"github.com/gomodule/redigo/redis"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
)

func TestAllocations_ofAPair(t *testing.T) {
	harness.RedisAllocations(t, 24, func(dial harness.Connector) *locker.Client {
		return clientOf(t, newPool(t, "", func(p *redis.Pool) {
			p.DialContext = func(ctx context.Context) (redis.Conn, error) {
				return redis.DialContext(ctx, "tcp", "", redis.DialContextFunc(dial))
			}
		}))
	})
}
