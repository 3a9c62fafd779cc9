//go:build !linux

package testserver

import (
	"errors"
	"time"
)

// useClock skips the test, in CI too: there is nothing that could be installed.
func (s *RedisServer) useClock() {
	s.t.Helper()
	s.t.Skipf("testserver: only on Linux can a server's clock be shifted")
}

func addToClock(string, time.Duration) error { return errors.ErrUnsupported }
