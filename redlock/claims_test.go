package redlock

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
)

// What is claimed of Redlock, on five simulated nodes, as many as the texts have: Martin Kleppmann,
// "How to do distributed locking" (2016), and Salvatore Sanfilippo, antirez, "Is Redlock safe?"
// (2016). A test is named after who claims what. It asserts what is true of this package, also
// where that is a violation: then it is a limit that the documentation states. The nodes do what
// Redis does (TestRegister_isWhatRedisDoes).

// process makes the Driver of another process, whose clock is ahead by so much, and whose network
// reaches those nodes, or all.
func process(t *testing.T, stages []*stage, ahead time.Duration, reaches ...int) *backend {
	t.Helper()
	nodes := clientsOf(stages)
	for i, n := range nodes {
		if reaches != nil && !slices.Contains(reaches, i) {
			n.(*stageClient).draws = func(uint64, uint64, uint64) path { return path{err: errRefused} }
		}
	}
	made, err := NewDriver(nodes)
	require.NoError(t, err)
	d := made.(*backend)
	d.clock = func() time.Time { return time.Now().Add(ahead) }
	t.Cleanup(func() { _ = d.Close() })
	return d
}

// Kleppmann: client 1 has the lock on A, B and C, and does not reach D and E. The clock of C jumps
// forward, so that the lock expires there, or C restarts without it; client 2 gets the lock on C, D
// and E. True. But client 2 gets a larger token, though its clock is behind if C has its data, and
// client 1 finds out when it extends and reaches a majority.
func TestKleppmann_aNodeOfABareMajorityThatLosesTheLockMakesTwoHolders(t *testing.T) {
	for name, c := range map[string]struct {
		lose   func(*stage)
		behind time.Duration
	}{
		"its clock jumps":   {func(s *stage) { s.ahead += ttl }, time.Hour},
		"it restarts empty": {(*stage).forget, 0},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 5, func(t *testing.T, d *backend, stages []*stage) {
				first, other := taken(t, d, stages[3:]...), process(t, stages, -c.behind)
				_, err := claims.Take(t.Context(), other, askFor("x"))
				require.ErrorIs(t, err, driver.ErrHeld)
				time.Sleep(time.Second)
				c.lose(stages[2])
				second := taken(t, other)
				assert.Positive(t, first.Validity(), "it has the lock by all that it knows")
				assert.Greater(t, second.Token(), first.Token())
				require.ErrorIs(t, first.Extend(t.Context(), ttl), locker.ErrLost)
				require.NoError(t, second.Extend(t.Context(), ttl), "the first has left the second's lock alone")
				require.NoError(t, second.Release(t.Context()))
			})
		})
	}
}

// A node may come back empty when one TTL has passed: exclusion does not suffer. The order of
// tokens does if the clock of a client was ahead by more than that, and does not when that much
// time has passed as well.
func TestKleppmann_aNodeThatComesBackEmptyAfterATTLLeavesTheTokensToTheClocks(t *testing.T) {
	for out, rises := range map[time.Duration]bool{15 * time.Second: false, 5 * time.Minute: true} {
		play(t, 5, func(t *testing.T, _ *backend, stages []*stage) {
			first := taken(t, process(t, stages, 20*time.Second, 0, 1, 2))
			require.NoError(t, first.Release(t.Context()))
			time.Sleep(out)
			stages[2].forget()
			second := taken(t, process(t, stages, 0, 2, 3, 4))
			assert.Equal(t, rises, second.Token() > first.Token(), "after %v", out)
			require.NoError(t, second.Release(t.Context()))
		})
	}
}

// antirez: time that is lost before the majority is counted is noticed, whatever it was lost by.
// True: a majority has granted the lock, its replies are held back, and the client believes nothing
// of them. What it took it gives back, long before that would expire.
func TestAntirez_repliesThatAreHeldBackGrantNothing(t *testing.T) {
	play(t, 5, func(t *testing.T, d *backend, stages []*stage) {
		for _, s := range stages {
			s.only(propose, path{back: longestTimeout + time.Second, heedless: true})
		}
		l, err := claims.Take(t.Context(), d, askFor("x"))
		require.ErrorContains(t, err, "no majority of 5 nodes: a:1: no answer within 500ms;")
		require.NotErrorIs(t, err, driver.ErrHeld)
		assert.Equal(t, 5, holding(stages))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Zero(t, holding(stages))
		require.NoError(t, l.Release(t.Context()))
	})
}

// antirez: a client that is cut off while it holds the lock makes the others wait for the TTL.
// True: for what is left of it, and no longer; and there is no moment at which two hold.
func TestAntirez_aHolderCutOffCostsTheOthersItsTTL(t *testing.T) {
	play(t, 5, func(t *testing.T, d *backend, stages []*stage) {
		l, start := taken(t, d), time.Now() // it sends nothing any more
		w := wait(t, process(t, stages, 0))
		<-w.done
		require.NoError(t, w.err)
		assert.LessOrEqual(t, l.Validity(), time.Duration(0), "two hold")
		assert.InDelta(t, ttl, time.Since(start), float64(time.Second))
		w.leave()
	})
}

// Two clients with different sets of nodes need not have one in common: both hold, and tokens fall.
func TestTokens_ofTwoSetsOfNodesMayFall(t *testing.T) {
	play(t, 5, func(t *testing.T, _ *backend, stages []*stage) {
		first, second := taken(t, process(t, stages[:3], 20*time.Second)), taken(t, process(t, stages[2:], 0))
		assert.Positive(t, first.Validity())
		assert.Less(t, second.Token(), first.Token(), "the limit: a fixed set of nodes")
	})
}

// clocksAhead sets the clocks of nodes by which they accept tokens, as TestPropose and TestRaise of
// package redisscript show. A proposal may be 30 s ahead.
func clocksAhead(stages []*stage, ahead ...time.Duration) {
	for i, s := range stages {
		s.edit(func(r *register) {
			r.clock = uint64(time.Now().Add(ahead[i]).UnixMicro())
			r.most = r.clock + uint64((30 * time.Second).Microseconds())
		})
	}
}

// One node whose clock is days ahead makes tokens that the others do not accept: it is outvoted,
// whichever nodes answer first.
func TestTokens_aNodeWhoseClockIsDaysOffIsOutvoted(t *testing.T) {
	for _, off := range []time.Duration{72 * time.Hour, -72 * time.Hour} {
		play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
			clocksAhead(stages, 0, off, 0)
			stages[2].always(path{back: 30 * time.Millisecond})
			var last uint64
			for range 3 {
				l := taken(t, d)
				assert.Greater(t, l.Token(), last)
				last = l.Token()
				assert.Less(t, last, uint64(time.Now().Add(time.Hour).UnixMicro()))
				require.NoError(t, l.Release(t.Context()))
				time.Sleep(time.Second) // every node has released it
			}
		})
	}
}

// The clocks of the nodes are so far apart that no two accept the same token. The error says so,
// and not that another has the lock.
func TestTokens_ofClocksTooFarApartAreNoOtherHolder(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		clocksAhead(stages, 0, 13*time.Hour, 26*time.Hour)
		l, err := claims.Take(t.Context(), d, askFor("x"))
		w := wait(t, d)
		<-w.done
		for _, err := range []error{err, w.err} {
			require.ErrorIs(t, err, driver.ErrUnsupported)
			require.NotErrorIs(t, err, driver.ErrHeld)
		}
		require.NoError(t, l.Release(t.Context()))
		synctest.Wait()
		assert.Zero(t, holding(stages))
	})
}
