package etcd_test

import (
	"testing"

	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestSilence_ofTwoFifthsOfTheTTLEndsNoHold(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t)
	c := openURL(t, s.URL()+"?ttl="+harness.SilenceTTL.String())
	harness.OutlivesSilence(t, c.Mutex("x"), s.Stop, s.Continue)
}

func TestSlowness_endsNoHold(t *testing.T) {
	t.Parallel()
	network := testserver.NewProxy(t, testserver.SharedEtcd(t).Addr())
	c := openURL(t, "etcd://"+network.Addr()+"?ttl="+harness.SilenceTTL.String())
	harness.OutlivesSlowness(t, c.Mutex("x"), network)
}
