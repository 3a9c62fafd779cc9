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
)

// forgottenByOne takes the lock on the first two nodes, of which the second forgets it: another comes and goes, on that one
// and on the third.
func forgottenByOne(t *testing.T, d *Driver, stages []*stage) locker.Lease {
	t.Helper()
	other := stageDriver(t, stages)
	defer func() { require.NoError(t, other.Close()) }()
	stages[2].always(path{err: errAway})
	l, err := d.Acquire(t.Context(), askFor("x"))
	require.NoError(t, err)
	synctest.Wait()
	stages[2].on(nil)
	stages[1].edit("x", func(r *register) { r.forget() })
	next, err := other.Acquire(t.Context(), askFor("x"))
	require.NoError(t, err)
	require.GreaterOrEqual(t, next.Token(), l.Token())
	require.NoError(t, next.Release(t.Context()))
	synctest.Wait()
	return l
}

// An Extend that was interrupted has had a node join. The next one must not count that node as one that always had the lock.
func TestTrouble_joinerOfAnInterruptedExtend(t *testing.T) {
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
func TestTrouble_joinInFlightOfAnotherExtend(t *testing.T) {
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
func TestTrouble_releaseDoesNotCountALateJoiner(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		l := forgottenByOne(t, d, stages)
		stages[1].on(func(v verb, _ string) path { return path{lost: v == extendIt} })
		stages[2].always(path{there: 50 * time.Millisecond})
		go func() { _ = l.Extend(context.Background(), ttl) }()
		time.Sleep(time.Millisecond)
		require.ErrorIs(t, l.Release(t.Context()), locker.ErrLost, "another came and went: one of three had it")
	})
}

// One node is dead, one hangs, one has come back: whatever the one that hangs would say, the Extend succeeds.
func TestTrouble_extendDoesNotWaitForANodeThatCannotMatter(t *testing.T) {
	play(t, 5, func(t *testing.T, d *Driver, stages []*stage) {
		stages[4].always(path{err: errAway})
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		synctest.Wait()
		stages[4].on(nil)
		stages[3].always(hung)
		stages[2].always(path{err: errAway})
		start := time.Now()
		require.NoError(t, l.Extend(t.Context(), ttl))
		assert.Less(t, time.Since(start), 100*time.Millisecond)
		require.NoError(t, l.Release(t.Context()))
	})
}

// A lease that one Extend has ended is extended by none.
func TestTrouble_extendOfALeaseThatAnotherHasEnded(t *testing.T) {
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
