package redlock_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testwait"
)

// All nodes are silent.
func TestSilence_ofTwoFifthsOfTheTTLEndsNoHold(t *testing.T) {
	testwait.OnlyNightly(t, "it takes two TTLs, and TestRenewal_outlivesAnOutageOfTwoFifthsOfTheTTLWheneverItBegins of the core shows it in virtual time")
	t.Parallel()
	q := newQuorum(t, 3)
	m := client(t, q.addrs(), locker.WithTTL(harness.SilenceTTL)).Mutex("x")
	eventually(t, "there are connections", func() bool { return m.TryLock(t.Context()) == nil })
	require.NoError(t, m.Unlock(t.Context()))
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
