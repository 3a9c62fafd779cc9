package redis_test

import (
	"testing"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestSilence_ofTwoFifthsOfTheTTLEndsNoHold(t *testing.T) {
	testwait.OnlyNightly(t, "the core shows it in virtual time")
	t.Parallel()
	s := testserver.Redis(t)
	c := newClient(t, s.Addr(), locker.WithTTL(harness.SilenceTTL))
	harness.OutlivesSilence(t, c.Mutex("x"), s.Stop, s.Continue)
}

func TestSlowness_endsNoHold(t *testing.T) {
	t.Parallel()
	network := testserver.NewProxy(t, testserver.SharedRedis(t).Addr())
	harness.OutlivesSlowness(t, newClient(t, network.Addr(), locker.WithTTL(harness.SilenceTTL)).Mutex("x"), network)
}
