package redis_test

import (
	"testing"

	"github.com/go-locker/locker/internal/test/harness"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	harness.RedisTLS(t, "redis")
}
