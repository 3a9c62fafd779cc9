package redlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
)

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
