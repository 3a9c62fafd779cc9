package redlock

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// forgottenByOne takes the lock on the first two nodes, of which the second forgets it: another comes and goes, on that one
// and on the third.
func forgottenByOne(t *testing.T, d *Driver, stages []*stage) driver.Lease {
	t.Helper()
	l := taken(t, d, stages[2])
	require.GreaterOrEqual(t, comeAndGo(t, stages, 1), l.Token())
	return l
}

// An Extend that was interrupted has had a node join. The next one must not count that node as one that always had the lock.
func TestFaults_joinerOfAnInterruptedExtend(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		l := forgottenByOne(t, d, stages)
		stages[1].always(path{back: 400 * time.Millisecond})
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, l.Extend(ctx, ttl), context.DeadlineExceeded)
		require.ErrorIs(t, l.Extend(t.Context(), ttl), locker.ErrLost, "another came and went")
		_ = l.Release(t.Context())
	})
}

// The same, with two Extends at once.
func TestFaults_joinInFlightOfAnotherExtend(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		l := forgottenByOne(t, d, stages)
		stages[1].always(path{back: 400 * time.Millisecond})
		stages[2].always(path{back: 50 * time.Millisecond})
		first := make(chan error, 1)
		go func() { first <- l.Extend(context.Background(), ttl) }()
		time.Sleep(time.Millisecond)
		require.ErrorIs(t, l.Extend(t.Context(), ttl), locker.ErrLost, "another came and went")
		require.ErrorIs(t, <-first, locker.ErrLost)
		_ = l.Release(t.Context())
	})
}

// Release does not count what a node granted after the release had begun.
func TestFaults_releaseDoesNotCountALateJoiner(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		l := forgottenByOne(t, d, stages)
		stages[1].on(func(v verb, _ string) path { return path{lost: v == extendIt} })
		stages[2].always(path{there: 50 * time.Millisecond})
		go func() { _ = l.Extend(context.Background(), ttl) }()
		time.Sleep(time.Millisecond)
		require.ErrorIs(t, l.Release(t.Context()), locker.ErrLost, "another came and went: one of three had it")
	})
}

// grantedLate takes the lock on the first two nodes while the request to the third is on its way. The second forgets the lock,
// and another comes and goes on that one and the third, which then grants what it was asked for.
func grantedLate(t *testing.T, d *Driver, stages []*stage) driver.Lease {
	t.Helper()
	stages[2].always(path{there: 300 * time.Millisecond})
	l, err := d.Acquire(t.Context(), askFor("x"))
	require.NoError(t, err)
	synctest.Wait() // the third request is on its way, too
	stages[2].on(nil)
	comeAndGo(t, stages, 1)
	time.Sleep(400 * time.Millisecond)
	require.True(t, stages[2].has("x"))
	return l
}

// comeAndGo has a node forget the lock, and another client take it and release it. It returns that one's token.
func comeAndGo(t *testing.T, stages []*stage, forgets int) uint64 {
	t.Helper()
	forget(stages[forgets])
	other := stageDriver(t, stages)
	l, err := other.Acquire(t.Context(), askFor("x"))
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
	synctest.Wait()
	require.NoError(t, other.Close())
	return l.Token()
}

func TestFaults_releaseAfterALateGrant(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		l := grantedLate(t, d, stages)
		require.ErrorIs(t, l.Release(t.Context()), locker.ErrLost, "another came and went")
	})
}

// While a node does not answer that had the lock all the time, one that joined late counts.
func TestFaults_releaseOfALateGrantAndOneUnreachable(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		stages[2].always(path{there: 300 * time.Millisecond})
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		time.Sleep(400 * time.Millisecond)
		stages[1].always(path{err: errRefused})
		stages[2].on(nil)
		require.NoError(t, l.Release(t.Context()))
	})
}

// One node is dead, one hangs that had granted late, one has come back: whatever the one that hangs would say, the Extend succeeds.
func TestFaults_extendDoesNotWaitForANodeThatCannotMatter(t *testing.T) {
	play(t, 5, func(t *testing.T, d *Driver, stages []*stage) {
		stages[4].always(path{err: errRefused})
		stages[3].only(propose, path{there: 5 * time.Millisecond})
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		time.Sleep(10 * time.Millisecond)
		stages[4].on(nil)
		stages[3].always(hung)
		stages[2].always(path{err: errRefused})
		start := time.Now()
		require.NoError(t, l.Extend(t.Context(), ttl))
		assert.Less(t, time.Since(start), 100*time.Millisecond)
		require.NoError(t, l.Release(t.Context()))
	})
}

// A lease that one Extend has ended is extended by none.
func TestFaults_extendOfALeaseThatAnotherHasEnded(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		synctest.Wait()
		var slow atomic.Bool
		slow.Store(true)
		for _, s := range stages {
			s.on(func(v verb, _ string) path {
				if v == extendIt && slow.Load() {
					return path{there: 0, back: 100 * time.Millisecond}
				}
				return path{}
			})
		}
		first := make(chan error, 1)
		go func() { first <- l.Extend(context.Background(), ttl) }()
		time.Sleep(10 * time.Millisecond)
		slow.Store(false)
		stages[1].edit("x", func(r *register) { r.forget() })
		stages[2].edit("x", func(r *register) { r.forget() })
		require.ErrorIs(t, l.Extend(t.Context(), ttl), locker.ErrLost)
		require.ErrorIs(t, <-first, locker.ErrLost, "the lease has ended")
		assert.LessOrEqual(t, l.Validity(), ttl-5*time.Millisecond)
	})
}
