package harness

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/test/testserver"
)

// Server is what each of testserver's is.
type Server interface {
	Stop()
	Continue()
	Kill()
	Wipe()
}

// Servers adds the faults that servers have as processes. restart starts them all, and returns when they answer.
func Servers[S Server](f *conformance.Faults, servers []S, restart func()) {
	each := func(do func(S)) {
		for _, s := range servers {
			do(s)
		}
	}
	f.StopServer = func(conformance.TB) (resume func()) {
		each(S.Stop)
		return func() { each(S.Continue) }
	}
	f.KillServer = func(conformance.TB) func() {
		each(S.Kill)
		return restart
	}
	f.WipeServer = func(conformance.TB) func() {
		each(S.Kill)
		each(S.Wipe)
		return restart
	}
}

// Clocks adds MoveClock, of servers that were started with a clock of their own.
func Clocks[S interface{ ShiftClock(d time.Duration) }](f *conformance.Faults, servers []S) {
	if !testserver.ShiftsClocks {
		return
	}
	shift := func(d time.Duration) {
		for _, s := range servers {
			s.ShiftClock(d)
		}
	}
	f.MoveClock = func(_ conformance.TB, d time.Duration) (back func()) {
		shift(d)
		return func() { shift(-d) }
	}
}

// RedisRefuse adds Refuse: the servers have no memory left.
func RedisRefuse(f *conformance.Faults, servers []*testserver.RedisServer) {
	limit := func(bytes string) {
		for _, s := range servers {
			s.Do("CONFIG", "SET", "maxmemory", bytes)
		}
	}
	f.Refuse = func(conformance.TB) (accept func()) {
		limit("1")
		return func() { limit("0") }
	}
}

// RedisRevoke is Faults.Revoke for a lock that is a key of the server that serving returns, under the default prefix. The server
// forgets its tokens, too.
func RedisRevoke(serving func(key string) *testserver.RedisServer) func(conformance.TB, string) {
	return func(_ conformance.TB, name string) {
		key := script.Key("locker:" + name)
		serving(key).Do("DEL", key)
	}
}

// RedlockRevoke is Faults.Revoke for a lock of these nodes, under the default prefix. They do not forget its tokens, as Redlock asks of
// them: the lock expires now, by its key's expiry.
func RedlockRevoke(nodes []*testserver.RedisServer) func(conformance.TB, string) {
	return func(_ conformance.TB, name string) {
		for _, s := range nodes {
			s.Do("PEXPIRE", script.Key("locker:"+name), strconv.FormatInt(script.Keep.Milliseconds(), 10))
		}
	}
}

// RedisHeld reports whether the server counts the lock at key as held now.
func RedisHeld(s *testserver.RedisServer, key string) bool {
	owner, _ := s.Do("HGET", key, "owner").(string)
	return owner != "" && s.Do("PTTL", key).(int64) > script.Keep.Milliseconds()
}

// RedisListening is Inspection.Listening of those who wait at the servers.
func RedisListening(servers ...*testserver.RedisServer) func(n int) bool {
	return func(n int) bool {
		for _, s := range servers {
			kinds := []string{"CHANNELS"}
			if s.HasShardChannels() {
				kinds = append(kinds, "SHARDCHANNELS")
			}
			for _, which := range kinds {
				channels, _ := s.Do("PUBSUB", which, "{*").([]any)
				n -= len(channels)
			}
		}
		return n == 0
	}
}

// SentinelFailOver is Faults.FailOver of one replica, which gets nothing from the primary any more before it takes over.
func SentinelFailOver(g *testserver.SentinelGroup) func(conformance.TB) (fail func()) {
	return func(t conformance.TB) (fail func()) {
		primary, replica := g.Primary(), g.Replica()
		replica.WaitSynced(primary)
		replica.Detach()
		failed := false
		t.Cleanup(func() {
			replica.Reattach()
			if failed {
				primary.Restart()
				primary.Follow(replica)
				return
			}
			replica.WaitSynced(primary)
		})
		return func() {
			failed = true
			primary.Kill()
			g.Failover()
		}
	}
}

// QuorumFailOver is Faults.FailOver of servers of which a majority has to know what is decided. A follower is down while
// others decide, and then, with the leader gone, makes up the majority.
func QuorumFailOver[S interface {
	comparable
	Kill()
	Restart()
}](servers []S, leader func() S) func(conformance.TB) (fail func()) {
	return func(t conformance.TB) (fail func()) {
		leads := leader()
		follower := servers[slices.IndexFunc(servers, func(s S) bool { return s != leads })]
		follower.Kill()
		down := follower
		t.Cleanup(func() { down.Restart() })
		return func() {
			down = leader() // of those that are left
			down.Kill()
			follower.Restart()
		}
	}
}

// Rights tests that the user of the Clients that open makes may do all that holders, waiters and
// operators do.
func Rights(t *testing.T, open func() *locker.Client) {
	t.Helper()
	c := open()
	m, next := c.Mutex("x"), open().Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	locked := async(func() error { return next.Lock(t.Context()) })
	if c.Guarantees()[locker.Ordered].Level == locker.LevelNo {
		time.Sleep(200 * time.Millisecond) // it waits, in no queue that could be seen
	} else {
		patience.Until(t, "it waits", func() bool {
			state, err := c.Inspect(t.Context(), "x")
			return err == nil && len(state.Waiters) == 1
		})
	}
	require.NoError(t, m.Extend(t.Context()))
	require.NoError(t, m.Unlock(t.Context()))
	require.NoError(t, patience.Result(t, locked))
	state := look(t, c, "x")
	assert.Equal(t, []string{"x"}, listed(t, c, ""))
	require.NoError(t, c.ForceRelease(t.Context(), "x", state))
	require.NoError(t, m.TryLock(t.Context()), "it is free: whoever held it does not stand in the queue")
	require.ErrorIs(t, next.Unlock(t.Context()), locker.ErrLost)
}

// RefusesURLs has locker.Open say of each URL what is wrong with it, and no password.
func RefusesURLs(t *testing.T, wants map[string]string) {
	t.Helper()
	for url, want := range wants {
		c, err := locker.Open(t.Context(), url)
		if err == nil {
			_ = c.Close()
		}
		require.ErrorContains(t, err, want, url)
		assert.NotContains(t, err.Error(), "s3cret")
		assert.NotRegexp(t, "goes with.* does not know", err, "what is known is not said to be unknown")
		assert.Equal(t, 1, strings.Count(err.Error(), "locker: "), err)
	}
}

// TLS tests the certificates of the server at url, which requires client certificates. Parameters
// can be appended to url. other are those of another server.
func TLS(t *testing.T, url string, its, other *testserver.Certificates) {
	t.Helper()
	do := func(ctx context.Context, parameters string) error {
		c, err := locker.Open(ctx, url+parameters)
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		return c.Mutex("x").Do(ctx, func(context.Context) error { return nil })
	}
	ca, pair := "&tls_ca="+its.CAFile, "&tls_cert="+its.CertFile+"&tls_key="+its.KeyFile
	for _, parameters := range []string{ca, ca + "&tls_server_name=localhost", "&tls_skip_verify=true"} {
		require.NoError(t, do(t.Context(), pair+parameters), parameters)
	}
	for name, c := range map[string]struct{ parameters, want string }{
		"the system's authorities": {pair, "unknown authority"},
		"another authority":        {pair + "&tls_ca=" + other.CAFile, "signed by"},
		"another name":             {pair + ca + "&tls_server_name=elsewhere.example", "elsewhere.example"},
		"no certificate":           {ca, ""},
		"another's certificate":    {ca + "&tls_cert=" + other.CertFile + "&tls_key=" + other.KeyFile, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := do(t.Context(), c.parameters)
			require.ErrorContains(t, err, c.want)
			require.NotErrorIs(t, err, locker.ErrHeld)
		})
	}
	t.Run("files that were replaced", func(t *testing.T) {
		dir := t.TempDir()
		f := testserver.CopyFiles(t, dir, other.CAFile, other.CertFile, other.KeyFile)
		c, err := locker.Open(t.Context(), url+"&tls_ca="+f[0]+"&tls_cert="+f[1]+"&tls_key="+f[2])
		require.NoError(t, err)
		defer func() { _ = c.Close() }()
		testserver.CopyFiles(t, dir, its.CAFile, its.CertFile, its.KeyFile)
		require.NoError(t, c.Mutex("x").Do(t.Context(), func(context.Context) error { return nil }))
	})
}
