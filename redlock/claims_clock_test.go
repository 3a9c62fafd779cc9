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
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/redlock"
)

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

// antirez: clocks have to run at about the same speed, and need not agree on the time. True, and
// more: one that jumps makes no second holder while a majority is left without it. It takes a jump
// of three of five.
func TestAntirez_aClockJumpOnOneNodeOfFiveMakesNoSecondHolder(t *testing.T) {
	testwait.OnlyNightly(t, "it is the other side of TestKleppmann_aClockJumpOnANodeOfABareMajorityMakesTwoHolders")
	t.Parallel()
	q := five(t, testserver.RedisClock())
	q.servers[nodeE].ShiftClock(-25 * time.Minute) // it never agreed with the others
	first := contender(t, q.addrs(), long)
	second := contender(t, q.addrs(), long)
	older := q.takeAll(t, first)
	require.NoError(t, first.Extend(t.Context()), "from which the nodes count that granted last")
	for _, node := range []int{nodeA, nodeB} {
		q.servers[node].ShiftClock(long + time.Second)
		requireDenied(t, second)
		require.NotZero(t, first.FencingToken())
		q.eventuallyFree(t, contested, node)
	}
	eventually(t, "the first, which three of five have kept, has all again", func() bool {
		require.NoError(t, first.Extend(t.Context()))
		return slices.Equal(q.heldAt(t, contested), all(5, true))
	})

	for _, node := range []int{nodeA, nodeB, nodeC} {
		q.servers[node].ShiftClock(long + time.Second)
	}
	newer := take(t, second)
	requireTwoHolders(t, first, second)
	assert.Greater(t, newer, older)
}

// antirez: clocks that run at about the same speed will do. True: a hold ends an allowance of a
// hundredth of the TTL before its TTL does, and nodes whose clocks have run ahead by that much, all
// of them, give the lock to the next after that and not before.
func TestAntirez_clocksThatRunFastByLessThanTheAllowanceMakeNoSecondHolder(t *testing.T) {
	testwait.OnlyNightly(t, "TestLock_takesOffTheAllowanceForDrift of the core shows the allowance, and the simulation has clocks that run fast")
	t.Parallel()
	const ttl = 2 * short
	q := five(t, testserver.RedisClock())
	first := contender(t, q.addrs(), ttl)
	second := contender(t, q.addrs(), long)
	q.warm(t, second)
	older := q.takeAll(t, first)
	for range 100 { // little by little, as a clock does that is fast
		time.Sleep(ttl / 200)
		for _, s := range q.servers {
			s.ShiftClock(ttl / 10000)
		}
	}
	var over bool
	eventually(t, "the second has the lock", func() bool {
		taken := second.TryLock(t.Context()) == nil
		over = first.FencingToken() == 0
		return taken
	})
	assert.True(t, over, "two hold")
	assert.Greater(t, second.FencingToken(), older)
}

// Kleppmann: a token has to be larger than all before it, always, and one made of a clock is not. A
// node whose clock jumps by a day has forgotten the tokens, as well as the locks. But what it then
// makes of its clock is so far ahead that the others refuse it: they outvote it, and there is
// neither a second holder nor a smaller token.
func TestKleppmann_aClockJumpOfDaysMakesNoSecondHolder(t *testing.T) {
	testwait.OnlyNightly(t, "TestTokens_aNodeWhoseClockIsDaysOffIsOutvoted")
	t.Parallel()
	q := five(t, testserver.RedisClock())
	first, _ := q.bareMajority(t, long)
	q.servers[nodeC].ShiftClock(24 * time.Hour)
	requireDenied(t, contender(t, q.addrs(), long, behind(time.Hour)))
	require.NotZero(t, first.FencingToken())
}

// Kleppmann: it is not clear how Redlock should make fencing tokens, for counters on several nodes
// get out of step. They do. But each holder's token is one that a majority has accepted, and so is
// larger than all before, whichever majority it is: here with clients whose clocks stand still, and
// nodes whose clocks jump.
func TestKleppmann_countersOnTheNodesGetOutOfStepAndTokensRise(t *testing.T) {
	testwait.OnlyNightly(t, "TestAcquire_raisesToTheLargestToken shows what it comes from")
	t.Parallel()
	q := five(t, testserver.RedisClock())
	start := time.Now().Add(3 * time.Hour) // later than what any node says: they have no part in it
	stopped := redlock.ProposerClock(func() time.Time { return start })
	var last uint64
	for i, nodes := range [][]int{
		{nodeA, nodeB, nodeC},
		{nodeC, nodeD, nodeE},
		{nodeA, nodeD, nodeE},
		{nodeA, nodeB, nodeD},
		{nodeB, nodeC, nodeE},
	} {
		q.servers[i].ShiftClock(time.Duration(i-2) * time.Hour)
		m := contender(t, q.reaching(t, nodes...), long, stopped)
		token := take(t, m)
		assert.Greater(t, token, last, "on nodes %v", nodes)
		last = token
		require.NoError(t, m.Unlock(t.Context()))
		q.eventuallyFree(t, contested, nodes...)
	}
	assert.Less(t, last, uint64(start.UnixMicro()+1000), "they are counted")

	counters := make(map[string]bool)
	for _, rdb := range q.direct {
		counters[rdb.HGet(t.Context(), key(contested), "token").Val()] = true
	}
	assert.Greater(t, len(counters), 1, "all nodes have counted alike: %v", counters)
}
