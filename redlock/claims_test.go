package redlock_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/redlock"
)

// What is claimed of Redlock, on five real servers, as many as the texts have: Martin Kleppmann,
// "How to do distributed locking" (2016), and Salvatore Sanfilippo, antirez, "Is Redlock safe?"
// (2016) and the documentation of Redlock, which is his too. A test is named after who claims what.
// It asserts what is true of this package, also where that is a violation: then it is a limit which
// the documentation of the package states, and the test shows that it is real.
//
//	claims_pause_test.go      a process that is stopped, a write that is delayed
//	claims_clock_test.go      clocks that jump, of nodes and of clients
//	claims_crash_test.go      nodes that restart, with and without a memory
//	claims_latency_test.go    replies that come late, and what a partition costs

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
	assert.True(t, time.Now().Before(first.Deadline()))
	select {
	case <-first.Lost():
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
