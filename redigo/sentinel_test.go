package redigo_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/harness"
	"github.com/go-locker/locker/internal/test/testserver"
)

// The old primary works on, and is not told for a while that it is none any more.
func TestSentinel_connectionsToTheOldPrimaryAreGivenUp(t *testing.T) {
	t.Parallel()
	g := testserver.Sentinel(t)
	ctx := t.Context()
	c := openClient(t, sentinelURL(g), locker.WithTTL(time.Minute), locker.WithoutRenewal())
	m, other := c.Mutex("before"), c.Mutex("before")
	require.NoError(t, m.Lock(ctx))
	token := m.FencingToken()
	waiting := async(func() error { return other.Lock(ctx) })
	old := g.Primary()
	eventually(t, "the waiter is subscribed", func() bool { return harness.RedisListening(old)(1) })
	g.Replica().WaitSynced(old)
	primary := g.Failover()
	time.Sleep(1100 * time.Millisecond) // for which a connection is trusted
	require.NoError(t, c.Mutex("after").Lock(ctx))
	assert.True(t, harness.RedisHeld(primary, keyOf("after")))
	eventually(t, "the waiter is subscribed at the new primary", func() bool { return harness.RedisListening(primary)(1) })
	require.NoError(t, m.Unlock(ctx), "the replica knew of the hold")
	require.NoError(t, await(t, waiting))
	assert.Greater(t, other.FencingToken(), token)
}

func TestSentinel_sentinelsThatKnowNothingHangOrAreDead(t *testing.T) {
	t.Parallel()
	g := testserver.Sentinel(t, testserver.SentinelConfig("sentinel down-after-milliseconds testmaster 30000"))
	warnings, err := openClient(t, sentinelURL(g)).Warnings(t.Context())
	require.NoError(t, err)
	require.Len(t, warnings, 2)
	assert.Contains(t, warnings[1], "down-after-milliseconds of the sentinels is 30000")
	elsewhere := strings.Replace(sentinelURL(g), g.MasterName(), "elsewhere", 1)
	err = openClient(t, elsewhere).Mutex("x").Lock(t.Context())
	require.ErrorContains(t, err, `"elsewhere"`)
	require.NotErrorIs(t, err, locker.ErrHeld)

	sentinels := g.Sentinels()
	sentinels[0].Stop()
	sentinels[1].Kill()
	c := openClient(t, sentinelURL(g), locker.WithTTL(4*time.Second))
	require.NoError(t, c.Mutex("x").Lock(withTimeout(t, 10*time.Second)))
	sentinels[2].Kill()
	sentinels[0].Kill()
	require.NoError(t, c.Mutex("y").Lock(t.Context()), "nothing is known to have changed")
	err = openClient(t, sentinelURL(g)).Mutex("x").Lock(t.Context())
	require.ErrorContains(t, err, "no sentinel")
	assert.NotErrorIs(t, err, locker.ErrHeld)
}

func TestSentinel_passwordsAndTLS(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3t-Passw0rd"
	g := testserver.Sentinel(t, testserver.RedisTLS(),
		testserver.RedisConfig("user app on >"+secret+" ~{locker:* +eval +evalsha +time +hmget +hget +hset +hdel +pttl +pexpire +role +select"),
		testserver.SentinelConfig("user looker on >"+secret+"-too +sentinel|get-master-addr-by-name"))
	s := g.Servers()[0]
	files := "&tls_ca=" + s.CAFile + "&tls_cert=" + s.CertFile + "&tls_key=" + s.KeyFile
	url := "redigos://app:" + secret + "@" + strings.Join(g.Addrs(), ",") + "/1?master_name=" + g.MasterName() + files
	require.NoError(t, openClient(t, url+"&sentinel_username=looker&sentinel_password="+secret+"-too").Mutex("x").Lock(t.Context()))
	err := openClient(t, url+"&sentinel_username=looker&sentinel_password="+secret).Mutex("x").Lock(t.Context())
	require.ErrorContains(t, err, "WRONGPASS")
	assert.NotContains(t, err.Error(), secret)
}
