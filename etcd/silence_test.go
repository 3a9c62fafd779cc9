package etcd_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
)

func TestSilence_ofTwoFifthsOfTheTTLEndsNoHold(t *testing.T) {
	t.Parallel()
	s := testserver.Etcd(t)
	c := openURL(t, s.URL()+"?ttl="+harness.SilenceTTL.String())
	harness.OutlivesSilence(t, c.Mutex("x"), s.Stop, s.Continue)
}

// A connection is half open: what is sent on it is acknowledged, and nothing comes back. gRPC's own
// keepalive would notice after 13 s.
func TestSilence_ofOneConnectionEndsNoHold(t *testing.T) {
	t.Parallel()
	const ttl = 12 * time.Second
	network := testserver.NewProxy(t, testserver.SharedEtcd(t).Addr())
	m := openURL(t, "etcd://"+network.Addr()+"?ttl="+ttl.String()).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	token := m.FencingToken()
	network.DropReplies(true)
	require.Error(t, m.Extend(withTimeout(t, 100*time.Millisecond)))
	network.DropReplies(false)
	deadline := m.Deadline()
	eventually(t, "it is renewed, or lost", func() bool { return m.FencingToken() == 0 || m.Deadline().After(deadline) })
	require.Equal(t, token, m.FencingToken())
	require.NoError(t, m.Unlock(t.Context()))
}

func TestSlowness_endsNoHold(t *testing.T) {
	t.Parallel()
	network := testserver.NewProxy(t, testserver.SharedEtcd(t).Addr())
	c := openURL(t, "etcd://"+network.Addr()+"?ttl="+harness.SilenceTTL.String())
	harness.OutlivesSlowness(t, c.Mutex("x"), network)
}
