// Package servertest is for tests that need servers.
package servertest

import (
	"os"
	"testing"

	"github.com/go-locker/locker/bench/internal/redisserver"
)

// Need skips the test where one of the programs is missing, unless a run without it proves nothing.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := redisserver.Find(program); err != nil {
			unavailable(t, err)
		}
	}
}

func unavailable(t testing.TB, err error) {
	t.Helper()
	for _, required := range []string{"LOCKER_REQUIRE_SERVERS", "CI"} {
		if os.Getenv(required) != "" {
			t.Fatalf("%v (required because %s is set)", err, required)
		}
	}
	t.Skip(err)
}
