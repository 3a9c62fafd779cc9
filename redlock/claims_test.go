package redlock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/redlock"
)

// What is claimed of Redlock, on five real servers, as many as the texts have: Martin Kleppmann,
// "How to do distributed locking" (2016), and Salvatore Sanfilippo, antirez, "Is Redlock safe?"
// (2016) and the documentation of Redlock, which is his too. A test is named after who claims what.
// It asserts what is true of this package, also where that is a violation: then it is a limit which
// the documentation of the package states, and the test shows that it is real.
// Those of a paused process are in claims_pause_test.go.

// The nodes, by the names that they have in the essays.
const (
	nodeA = iota
	nodeB
	nodeC
	nodeD
	nodeE
)

const (
	long  = 30 * time.Second // a TTL that does not pass while a test runs: what is free then was released
	short = 3 * time.Second  // one that a test waits for

	contested = "x" // the name of the lock
)

func five(t *testing.T, opts ...testserver.RedisOption) *quorum {
	t.Helper()
	q := &quorum{}
	for range 5 {
		q.start(t, opts...)
	}
	return q
}

func (q *quorum) start(t *testing.T, opts ...testserver.RedisOption) {
	t.Helper()
	s := testserver.Redis(t, opts...)
	q.servers = append(q.servers, s)
	q.direct = append(q.direct, connect(t, s.Addr(), heedingCtx))
}

// reaching is the addresses for a client that the network lets reach nodes, and no others.
func (q *quorum) reaching(t *testing.T, nodes ...int) []string {
	t.Helper()
	addrs := q.addrs()
	for i := range addrs {
		if !slices.Contains(nodes, i) {
			p := testserver.NewProxy(t, addrs[i])
			p.Sever()
			addrs[i] = p.Addr()
		}
	}
	return addrs
}

// proxied is the addresses for a client whose network a test disturbs, and that network.
func (q *quorum) proxied(t *testing.T) ([]string, []*testserver.Proxy) {
	t.Helper()
	var addrs []string
	var network []*testserver.Proxy
	for _, s := range q.servers {
		p := testserver.NewProxy(t, s.Addr())
		addrs, network = append(addrs, p.Addr()), append(network, p)
	}
	return addrs, network
}

// unhurried is a time-out of nodes that a healthy one keeps to on a busy machine, too.
func unhurried(ttl time.Duration) redlock.DriverOption {
	return redlock.NodeTimeout(min(ttl/8, 2*time.Second))
}

// contender is the lock as a process of its own has it. It is not renewed.
func contender(t testing.TB, addrs []string, ttl time.Duration, opts ...redlock.DriverOption) *locker.Mutex {
	t.Helper()
	d := driverOver(t, addrs, heedingCtx, append([]redlock.DriverOption{unhurried(ttl)}, opts...)...)
	c, err := locker.New(d, locker.WithTTL(ttl), locker.WithoutRenewal())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c.Mutex(contested)
}

// behind is a client's clock that is wrong.
func behind(d time.Duration) redlock.DriverOption {
	return redlock.ProposerClock(func() time.Time { return time.Now().Add(-d) })
}

// take waits until m has the lock, and returns the token. It tries again whatever is wrong, for on
// a busy machine nodes may be late.
func take(t testing.TB, m *locker.Mutex) uint64 {
	t.Helper()
	err := m.TryLock(t.Context())
	for deadline := time.Now().Add(patient); err != nil && time.Now().Before(deadline); err = m.TryLock(t.Context()) {
		time.Sleep(5 * tick)
	}
	require.NoError(t, err, "after %v", patient)
	token := m.FencingToken()
	require.NotZero(t, token, "the hold has expired already")
	return token
}

// takeAll is take, at every node.
func (q *quorum) takeAll(t *testing.T, m *locker.Mutex) uint64 {
	t.Helper()
	token := take(t, m)
	eventually(t, "all five have granted the lock", func() bool {
		require.NotZero(t, m.FencingToken())
		if slices.Equal(q.heldAt(t, contested), all(5, true)) {
			return true
		}
		_ = m.Extend(t.Context()) // has nodes join that were late
		return false
	})
	return token
}

// bareMajority takes the lock on A, B and C for a client that does not reach D and E.
func (q *quorum) bareMajority(t *testing.T, ttl time.Duration, opts ...redlock.DriverOption) (*locker.Mutex, uint64) {
	t.Helper()
	m := contender(t, q.reaching(t, nodeA, nodeB, nodeC), ttl, opts...)
	return m, q.takeABC(t, m)
}

// takeABC is take, where D and E cannot be reached.
func (q *quorum) takeABC(t *testing.T, m *locker.Mutex) uint64 {
	t.Helper()
	token := take(t, m)
	require.Equal(t, []bool{true, true, true, false, false}, q.heldAt(t, contested))
	return token
}

// requireDenied wants to hear that another has the lock. A node that is late says nothing, and m
// tries again.
func requireDenied(t *testing.T, m *locker.Mutex) {
	t.Helper()
	eventually(t, "a majority answers that another has the lock", func() bool {
		err := m.TryLock(t.Context())
		require.Error(t, err, "a second holder")
		return errors.Is(err, locker.ErrHeld)
	})
}

// requireTwoHolders is the violation: second has the lock, and first has it still by all that it
// knows.
func requireTwoHolders(t *testing.T, first, second *locker.Mutex) {
	t.Helper()
	require.NotZero(t, first.FencingToken(), "the first's time is over")
	require.NotZero(t, second.FencingToken())
	assert.True(t, time.Now().Before(first.Hold().Deadline()))
	select {
	case <-first.Hold().Lost():
		t.Error("the first knows of its loss")
	default:
	}
}

// requireNoMajority is what a client hears that cannot reach enough nodes: not that another has the
// lock.
func requireNoMajority(t *testing.T, err error) []redlock.Vote {
	t.Helper()
	require.Error(t, err)
	require.NotErrorIs(t, err, locker.ErrHeld)
	var e *redlock.Error
	require.ErrorAs(t, err, &e)
	require.Len(t, e.Votes, 5)
	return e.Votes
}

// Kleppmann: client 1 has the lock on A, B and C, and does not reach D and E; the clock of C jumps
// forward, so that the lock expires there; client 2 gets it on C, D and E. True. But C remembers
// the token, so that client 2 gets a larger one, though its own clock is an hour behind; and client
// 1 finds out when it extends and reaches a majority.
func TestKleppmann_aClockJumpOnANodeOfABareMajorityMakesTwoHolders(t *testing.T) {
	t.Parallel()
	q := five(t, testserver.RedisClock())
	addrs, network := q.proxied(t)
	network[nodeD].Sever()
	network[nodeE].Sever()
	first := contender(t, addrs, long)
	older := q.takeABC(t, first)
	second := contender(t, q.addrs(), long, behind(time.Hour))
	requireDenied(t, second)

	q.servers[nodeC].ShiftClock(long + time.Second)
	newer := take(t, second)
	requireTwoHolders(t, first, second)
	assert.Greater(t, newer, older)
	require.Error(t, first.Extend(t.Context()), "no more than A and B have it")

	network[nodeD].Restore()
	network[nodeE].Restore()
	eventually(t, "the first finds out by extending", func() bool {
		err := first.Extend(t.Context())
		require.Error(t, err)
		return errors.Is(err, locker.ErrLost)
	})
	assert.Zero(t, first.FencingToken())
	require.ErrorIs(t, first.Unlock(t.Context()), locker.ErrLost)
	require.NoError(t, second.Extend(t.Context()), "the first has left the second's lock alone")
	require.NoError(t, second.Unlock(t.Context()))
}

// Kleppmann: client 1 has the lock on A, B and C; C crashes and restarts without it; client 2 gets
// it on C, D and E. True. The tokens still rise while the clocks of the clients are sane, for they
// are made of those.
func TestKleppmann_aNodeThatRestartsEmptyMakesTwoHolders(t *testing.T) {
	t.Parallel()
	q := five(t)
	first, older := q.bareMajority(t, long)
	second := contender(t, q.addrs(), long)
	requireDenied(t, second)
	q.servers[nodeC].Restart()
	newer := take(t, second)
	requireTwoHolders(t, first, second)
	assert.Greater(t, newer, older)
}

// A node may come back empty when one TTL has passed: exclusion does not suffer. The order of
// tokens does, if the clock of a client was ahead by more than that; it does not when that much
// time has passed as well.
func TestKleppmann_aNodeThatComesBackEmptyAfterATTLLeavesTheTokensToTheClocks(t *testing.T) {
	testwait.OnlyNightly(t, "it is a variation of TestKleppmann_aNodeThatRestartsEmptyMakesTwoHolders")
	for name, c := range map[string]struct {
		ahead, out time.Duration
		rises      bool
	}{
		"ahead by more":    {20 * time.Second, 15 * time.Second, false},
		"ahead by less":    {20 * time.Second, 5 * time.Minute, true},
		"ahead by an hour": {time.Hour, 5 * time.Minute, true}, // the nodes have taken their own clocks
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q := five(t, testserver.RedisClock())
			first, older := q.bareMajority(t, long, behind(-c.ahead))
			require.NoError(t, first.Unlock(t.Context()))
			q.servers[nodeC].Kill()
			for _, s := range q.servers {
				s.ShiftClock(c.out)
			}
			q.servers[nodeC].Restart()
			second := contender(t, q.reaching(t, nodeC, nodeD, nodeE), long, behind(-c.out))
			assert.Equal(t, c.rises, take(t, second) > older)
		})
	}
}

// antirez: with an append-only file a node knows its locks after a crash. True after kill -9 even
// with fsync every second: what the server had written is the kernel's. After a power loss it takes
// fsync at every write, as Kleppmann says. The power loss is simulated: the file is put back as it
// was at the last fsync that the setting guarantees, before the take or after its reply.
func TestAntirez_anAppendOnlyFileSavesHoldsFromACrashAndWithFsyncAlwaysFromAPowerLoss(t *testing.T) {
	for name, c := range map[string]struct {
		fsync             string
		powerLoss, forget bool
	}{
		"a crash":                             {"everysec", false, false},
		"a power loss with fsync each second": {"everysec", true, true},
		"a power loss with fsync always":      {"always", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, root := &quorum{}, t.TempDir() // before the servers, and so removed after their end
			disk := filepath.Join(root, "2")
			for i := range 5 {
				dir := filepath.Join(root, strconv.Itoa(i))
				require.NoError(t, os.Mkdir(dir, 0o700))
				q.start(t, testserver.RedisArgs("--dir", dir, "--appendonly", "yes", "--appendfsync", c.fsync))
			}
			image := filepath.Join(t.TempDir(), "image")
			save := func() { require.NoError(t, os.CopyFS(image, os.DirFS(disk))) }
			if c.forget {
				save()
			}
			first, _ := q.bareMajority(t, long)
			if !c.forget {
				save()
			}
			q.servers[nodeC].Kill()
			if c.powerLoss {
				require.NoError(t, os.RemoveAll(disk))
				require.NoError(t, os.CopyFS(disk, os.DirFS(image)))
			}
			q.servers[nodeC].Restart()
			assert.Equal(t, !c.forget, q.heldAt(t, contested)[nodeC])
			second := contender(t, q.addrs(), long)
			if c.forget {
				take(t, second)
				requireTwoHolders(t, first, second)
				return
			}
			requireDenied(t, second)
			require.NoError(t, first.Extend(t.Context()))
			require.NoError(t, first.Unlock(t.Context()))
		})
	}
}

// warm leaves connections, so that the next request to a majority is the one to take the lock: the
// reply to Unlock has come from a majority.
func (q *quorum) warm(t *testing.T, m *locker.Mutex) {
	t.Helper()
	q.takeAll(t, m)
	require.NoError(t, m.Unlock(t.Context()))
	q.eventuallyFree(t, contested, nodeA, nodeB, nodeC, nodeD, nodeE)
}

func count(held []bool) int {
	n := 0
	for _, h := range held {
		if h {
			n++
		}
	}
	return n
}

// antirez: time that is lost before the majority is counted is noticed, whatever it was lost by.
// True: a majority has granted the lock, its replies are held back, and the client believes nothing
// of them. What it took it gives back when they come, long before it would expire.
func TestAntirez_repliesThatAreHeldBackGrantNothing(t *testing.T) {
	t.Parallel()
	q := five(t)
	addrs, network := q.proxied(t)
	m := contender(t, addrs, long, redlock.NodeTimeout(2*time.Second))
	q.warm(t, m)
	for _, p := range network {
		p.HoldReplies(true)
	}
	tried := make(chan error, 1)
	go func() { tried <- m.TryLock(t.Context()) }()
	eventually(t, "a majority has granted the lock", func() bool { return count(q.heldAt(t, contested)) >= 3 })
	requireNoMajority(t, <-tried) // the client was not told in time
	assert.Zero(t, m.FencingToken())
	for _, p := range network {
		p.ReleaseReplies()
	}
	q.eventuallyFree(t, contested, nodeA, nodeB, nodeC, nodeD, nodeE)
	take(t, contender(t, q.addrs(), long))
}

// antirez: a client that is cut off while it holds the lock makes the others wait for the TTL.
// True: for what is left of it, once, and no longer; and there is no moment at which two hold.
func TestAntirez_aHolderCutOffCostsTheOthersItsTTL(t *testing.T) {
	t.Parallel()
	q := five(t)
	addrs, network := q.proxied(t)
	first := contender(t, addrs, short)
	second := contender(t, q.addrs(), long)
	q.warm(t, second)
	older := q.takeAll(t, first)
	for _, p := range network {
		p.Sever()
	}
	cut, left := time.Now(), time.Until(first.Hold().Deadline())
	newer := take(t, second)
	waited := time.Since(cut)
	assert.Zero(t, first.FencingToken(), "two hold")
	assert.Greater(t, newer, older)
	assert.GreaterOrEqual(t, waited, left)
	assert.Less(t, waited, short+patient/2, "the wait has an end")
	require.ErrorIs(t, first.Unlock(t.Context()), locker.ErrLost)
	require.NoError(t, second.Unlock(t.Context()))
}

// antirez: who reaches a minority gets nothing, who reaches a majority goes on. True, and the first
// is told that the nodes are unreachable, not that another has the lock.
func TestAntirez_aPartitionStopsItsMinoritySideAlone(t *testing.T) {
	t.Parallel()
	q := five(t)
	minority := contender(t, q.reaching(t, nodeA, nodeB), long)
	majority := contender(t, q.reaching(t, nodeC, nodeD, nodeE), long)
	votes := requireNoMajority(t, minority.TryLock(t.Context()))
	for _, v := range votes[nodeC:] {
		require.Error(t, v.Err, v.Node)
	}
	q.eventuallyFree(t, contested, nodeA, nodeB)
	token := take(t, majority)
	require.Equal(t, []bool{false, false, true, true, true}, q.heldAt(t, contested))
	requireNoMajority(t, minority.TryLock(t.Context()))
	require.NoError(t, majority.Extend(t.Context()))
	assert.Equal(t, token, majority.FencingToken())
	require.NoError(t, majority.Unlock(t.Context()))
}

// A node forgets a token a minute after its hold. So what a client whose clock is days ahead leaves
// must not be days ahead: others' tokens would be smaller then.
func TestTokens_ofAClientWhoseClockIsDaysAheadAreNotForgottenTooSoon(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3, testserver.RedisClock())
	ahead := contender(t, q.addrs(), long, behind(-72*time.Hour))
	older := take(t, ahead)
	require.NoError(t, ahead.Unlock(t.Context()))
	q.eventuallyFree(t, contested, 0, 1, 2)
	const later = keep + 2*long
	for _, s := range q.servers {
		s.ShiftClock(later)
	}
	right := contender(t, q.addrs(), long, behind(-later))
	assert.Greater(t, take(t, right), older, "a minute later, by a clock that is right")
}

// Nodes that have lost their data, or have forgotten a name that nobody took for a minute, make up
// for a client whose clock is behind.
func TestTokens_riseThoughNodesForgetAndAClientsClockIsBehind(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3)
	first := contender(t, q.addrs(), long)
	older := take(t, first)
	require.NoError(t, first.Unlock(t.Context()))
	q.eventuallyFree(t, contested, 0, 1, 2)
	for _, rdb := range q.direct {
		require.NoError(t, rdb.FlushAll(t.Context()).Err())
	}
	assert.Greater(t, take(t, contender(t, q.addrs(), long, behind(time.Hour))), older)
}

// Two clients with different sets of nodes need not have one in common: both hold, and tokens fall.
func TestTokens_ofTwoSetsOfNodesMayFall(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 5)
	addrs := q.addrs()
	first := contender(t, []string{addrs[0], addrs[1], addrs[2]}, long, behind(-20*time.Second))
	second := contender(t, []string{addrs[2], addrs[3], addrs[4]}, long)
	older := take(t, first)
	newer := take(t, second)
	requireTwoHolders(t, first, second)
	assert.Less(t, newer, older, "the limit: a fixed set of nodes")
}

// One node whose clock is days ahead makes tokens that the others do not accept: it is outvoted,
// whichever nodes answer first.
func TestTokens_aNodeWhoseClockIsDaysOffIsOutvoted(t *testing.T) {
	for _, off := range []time.Duration{72 * time.Hour, -72 * time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			t.Parallel()
			q := newQuorum(t, 3, testserver.RedisClock())
			q.servers[1].ShiftClock(off)
			addrs, network := q.proxied(t)
			for i, delay := range []time.Duration{0, 0, 30 * time.Millisecond} {
				network[i].Delay(delay)
			}
			m := contender(t, addrs, long)
			var last uint64
			for range 3 {
				token := take(t, m)
				assert.Greater(t, token, last)
				assert.Less(t, token, uint64(time.Now().Add(time.Hour).UnixMicro()))
				last = token
				require.NoError(t, m.Unlock(t.Context()))
				q.eventuallyFree(t, contested, 0, 1, 2)
			}
		})
	}
}

// The clocks of the nodes are so far apart that no two accept the same token. The error says so,
// and not that another has the lock.
func TestTokens_ofClocksTooFarApartAreNoOtherHolder(t *testing.T) {
	t.Parallel()
	q := newQuorum(t, 3, testserver.RedisClock())
	q.servers[1].ShiftClock(13 * time.Hour)
	q.servers[2].ShiftClock(26 * time.Hour)
	m := contender(t, q.addrs(), long)
	for name, lock := range map[string]func(context.Context) error{"TryLock": m.TryLock, "Lock": m.Lock} {
		eventually(t, name+" says why", func() bool { // a node that is late says nothing
			err := lock(testwait.Context(t, 3*time.Second))
			require.Error(t, err)
			require.NotErrorIs(t, err, locker.ErrHeld, name)
			q.eventuallyFree(t, contested, 0, 1, 2) // what the attempt left behind is released in the background
			return strings.Contains(err.Error(), "ahead of the server's clock")
		})
	}
}
