package redlock_test

import (
	"testing"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/harness"
)

// All nodes are silent.
func TestSilence_ofTwoFifthsOfTheTTLEndsNoHold(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3)
	m := client(t, q.addrs(), locker.WithTTL(harness.SilenceTTL)).Mutex("x")
	harness.OutlivesSilence(t, m, func() {
		for _, s := range q.servers {
			s.Stop()
		}
	}, func() {
		for _, s := range q.servers {
			s.Continue()
		}
	})
}
