// Package servertest is for tests that need a redis-server.
package servertest

import (
	"os"
	"testing"

	"github.com/go-locker/locker/bench/internal/redisserver"
)

// Need skips the test where there is no redis-server, unless a run without it proves nothing.
func Need(t testing.TB) {
	t.Helper()
	_, err := redisserver.Find()
	if err == nil {
		return
	}
	for _, required := range []string{"LOCKER_REQUIRE_SERVERS", "CI"} {
		if os.Getenv(required) != "" {
			t.Fatalf("%v (required because %s is set)", err, required)
		}
	}
	t.Skip(err)
}
