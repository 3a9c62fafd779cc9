package redlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// An Unlock does not wait for a renewal in flight. One that reaches the nodes after the release finds nothing
// there, and its answers may come in before those to the release: that is no loss.
func TestFaults_releaseDuringAnExtendIsNoLoss(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		synctest.Wait()
		for _, s := range stages {
			s.on(func(v verb, _ string) path {
				if v == releaseIt {
					return path{there: time.Millisecond, back: 10 * time.Millisecond}
				}
				return path{there: 3 * time.Millisecond}
			})
		}
		go func() { _ = l.Extend(context.Background(), ttl) }()
		time.Sleep(time.Millisecond)
		require.NoError(t, l.Release(t.Context()), "every node had it and has released it")
	})
}

// Two of three nodes have granted the lock, for another's attempt had the third for a moment. Then one of the two
// hangs: a minority, while the other two are well. (A Lock waits at the third, and joins it.)
func TestFaults_oneNodeHangsAfterASplitVote(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		stages[2].edit("locker:x", func(r *register) { // another's, and soon gone
			*r = register{owner: 999, known: true, last: 1, until: time.Now().Add(time.Millisecond).UnixNano()}
		})
		c, err := locker.New(d, locker.WithTTL(ttl))
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		m := c.Mutex("x")
		require.NoError(t, m.TryLock(t.Context()))
		time.Sleep(10 * time.Millisecond)
		require.False(t, stages[2].has("locker:x"))
		stages[1].always(hung)
		select {
		case <-m.Lost():
			t.Errorf("lost, though two of three nodes never had a fault")
		case <-time.After(2 * ttl):
		}
		start := time.Now()
		require.NoError(t, m.Unlock(t.Context()))
		assert.Less(t, time.Since(start), 100*time.Millisecond)
	})
}

// The same without contention: nodes are unreachable one at a time, and none forgets.
func TestFaults_nodesUnreachableOneAfterTheOther(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		c, err := locker.New(d, locker.WithTTL(ttl))
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		m := c.Mutex("x")
		stages[2].always(path{err: errRefused})
		require.NoError(t, m.Lock(t.Context()))
		time.Sleep(time.Second)
		stages[2].on(nil)
		time.Sleep(time.Second)
		stages[1].always(path{err: errRefused})
		select {
		case <-m.Lost():
			t.Errorf("lost, though never more than one node was unreachable")
		case <-time.After(2 * ttl):
		}
		_ = m.Unlock(t.Context())
	})
}

// A node grants the lock under a token larger than the one agreed on, for it has accepted a larger one before, and
// its answer is lost. What is ours there must be remembered, and given back.
func TestFaults_grantUnderALargerTokenWhoseAnswerIsLost(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
		stages[2].edit("x", func(r *register) { *r = register{known: true, last: ahead} })
		stages[2].always(path{mute: true})
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.True(t, stages[2].has("x"))
		stages[2].on(nil)
		require.NoError(t, l.Extend(t.Context(), ttl))
		synctest.Wait()
		require.NoError(t, l.Release(t.Context()))
		synctest.Wait()
		assert.False(t, stages[2].has("x"), "released at all nodes")
	})
}

// What nodes answer within their time-out is enough for a Lock, and so it must be for a renewal, at the shortest TTL
// that is not refused.
func TestFaults_nodesThatAnswerWithinTheirTimeOutRenew(t *testing.T) {
	const ttl = 3500 * time.Millisecond
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		for _, s := range stages {
			s.always(path{there: 499 * time.Millisecond})
		}
		require.ErrorIs(t, d.CheckTTL(ttl-time.Millisecond), locker.ErrUnsupported)
		c, err := locker.New(d, locker.WithTTL(ttl))
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		select {
		case <-m.Lost():
			t.Errorf("lost, though every node answers in time")
		case <-time.After(5 * ttl):
		}
		require.NoError(t, m.Unlock(t.Context()))
	}, NodeTimeout(500*time.Millisecond))
}

// Lock is over when two nodes have granted. The third's grant is on its way, and is as good as its extension, should
// one of the two hang right then: once that has had its time.
func TestFaults_extendWhileAGrantIsOnItsWay(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		stages[0].always(path{back: 5 * time.Millisecond})
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		stages[2].always(hung)
		start := time.Now()
		require.NoError(t, l.Extend(t.Context(), ttl))
		assert.Equal(t, d.nodeTimeout(ttl), time.Since(start))
		require.NoError(t, l.Release(t.Context()))
	})
}

// One lease of a batch waits for a node that hangs. The majority of another has answered at once.
func TestFaults_extendAllDecidesEachLeaseInItsOwnTime(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		stages[1].only(propose, path{there: 5 * time.Millisecond}) // it joins
		old, err := d.Acquire(t.Context(), askFor("old"))
		require.NoError(t, err)
		time.Sleep(ttl / 2)
		stages[1].on(nil)
		stages[2].always(path{err: errRefused})
		fresh, err := d.Acquire(t.Context(), askFor("new"))
		require.NoError(t, err)
		synctest.Wait()
		stages[2].on(func(v verb, _ string) path { return path{lost: v == propose} })
		stages[1].always(hung)
		time.Sleep(time.Until(time.Now().Add(old.Validity() - 300*time.Millisecond)))
		errs := d.ExtendAll(t.Context(), []driver.Lease{fresh, old}, ttl)
		require.Error(t, errs[0])
		require.NoError(t, errs[1], "two of three had extended it before it expired")
		assert.Positive(t, old.Validity())
	})
}

// A node that was away is asked to take the lock as well, and its answer comes after the release.
func TestFaults_grantOfARejoinThatIsLateIsGivenBack(t *testing.T) {
	for _, p := range []path{{there: 300 * time.Millisecond}, {back: 300 * time.Millisecond}, {there: 450 * time.Millisecond, back: time.Second}} {
		play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
			stages[2].always(path{err: errRefused})
			l, err := d.Acquire(t.Context(), askFor("x"))
			require.NoError(t, err)
			synctest.Wait()
			stages[2].on(func(v verb, _ string) path {
				if v == propose {
					return p
				}
				return path{}
			})
			require.NoError(t, l.Extend(t.Context(), ttl))
			require.NoError(t, l.Release(t.Context()))
			time.Sleep(2 * time.Second)
			assert.False(t, stages[2].has("x"))
			stages[2].on(nil)
			next, err := d.Acquire(t.Context(), askFor("x"))
			require.NoError(t, err)
			synctest.Wait()
			assert.True(t, stages[2].has("x"))
			assert.Greater(t, next.Token(), l.Token())
			require.NoError(t, next.Release(t.Context()))
		})
	}
}

// A rejoin takes nothing from another's attempt, nor does it raise what that is told.
func TestFaults_rejoinAtANodeThatAnotherHas(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		stages[2].edit("x", func(r *register) {
			*r = register{owner: 999, known: true, last: 7, until: time.Now().Add(ttl / 4).UnixNano()}
		})
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		require.NoError(t, l.Extend(t.Context(), ttl))
		synctest.Wait()
		stages[2].edit("x", func(r *register) {
			assert.Equal(t, uint64(999), r.owner)
			assert.Equal(t, uint64(7), r.last, "a denied proposal leaves nothing behind")
		})
		time.Sleep(ttl / 2)
		require.NoError(t, l.Extend(t.Context(), ttl))
		synctest.Wait()
		stages[2].edit("x", func(r *register) { assert.Equal(t, l.Token(), r.last) })
		require.NoError(t, l.Release(t.Context()))
		synctest.Wait()
		assert.False(t, stages[2].has("x"))
	})
}

// The requests that waiters, holds and releases make while nodes are unreachable are bounded by the clock, not by how many ask.
func TestFaults_requestsToNodesThatHang(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		c, err := locker.New(d, locker.WithTTL(ttl))
		require.NoError(t, err)
		defer func() { require.NoError(t, c.Close()) }()
		stages[0].always(hung)
		stages[1].always(hung)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		for range 20 {
			go func() {
				for ctx.Err() == nil {
					_ = c.Mutex("x").Lock(ctx)
					time.Sleep(100 * time.Millisecond)
				}
			}()
		}
		time.Sleep(time.Second)
		before := stages[0].counted(propose) + stages[0].counted(releaseIt)
		time.Sleep(20 * time.Second)
		after := stages[0].counted(propose) + stages[0].counted(releaseIt)
		assert.Less(t, after-before, 20*int(time.Second/longestTimeout)+20)
		cancel()
		time.Sleep(2 * ttl)
		last := total(stages)
		time.Sleep(ttl)
		assert.Equal(t, last, total(stages), "nothing goes on for ever")
	})
}

// Close gives requests that nobody waits for a moment, however long a node may take.
func TestFaults_closeDoesNotWaitForANodeThatHangs(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		l, err := d.Acquire(t.Context(), driver.Request{Name: "x", TTL: time.Minute})
		require.NoError(t, err)
		synctest.Wait()
		stages[2].always(hung)
		require.NoError(t, l.Release(t.Context()))
		start := time.Now()
		require.NoError(t, d.Close())
		assert.LessOrEqual(t, time.Since(start), 500*time.Millisecond)
	}, NodeTimeout(5*time.Second))
}
