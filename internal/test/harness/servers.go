package harness

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/test/testserver"
)

// server is what each of testserver's is.
type server interface {
	Stop()
	Continue()
	Kill()
	Wipe()
}

// Servers adds the faults that servers have as processes. restart starts them all, and returns when they answer.
func Servers[S server](f *conformance.Faults, servers []S, restart func()) {
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
	state, err := c.Inspect(t.Context(), "x")
	require.NoError(t, err)
	var names []string
	for name, err := range c.List(t.Context(), "") {
		require.NoError(t, err)
		names = append(names, name)
	}
	assert.Equal(t, []string{"x"}, names)
	require.NoError(t, c.ForceRelease(t.Context(), "x", state))
	require.NoError(t, m.TryLock(t.Context()), "it is free: whoever held it does not stand in the queue")
	require.ErrorIs(t, next.Unlock(t.Context()), locker.ErrLost)
}
