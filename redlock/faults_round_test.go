package redlock

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// opaque is a context for whose end package context waits in a goroutine for each of its children, which can be counted.
type opaque struct{ context.Context }

func (opaque) Value(any) any { return nil }

// Nothing is kept of what is over, nor of calls that were interrupted.
func TestFaults_nothingIsKeptOfManyExtends(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		d.open = opaque{d.open}
		l := taken(t, d)
		before := runtime.NumGoroutine()
		for range 10_000 {
			require.NoError(t, l.Extend(t.Context(), ttl))
		}
		synctest.Wait()
		assert.Less(t, runtime.NumGoroutine(), before+50, "goroutines, one for each round that is not over")
		for _, s := range stages {
			s.always(path{back: 100 * time.Millisecond})
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, l.Extend(ended, ttl), context.Canceled)
		require.ErrorIs(t, l.Release(ended), context.Canceled)
		l.mu.Lock()
		assert.Empty(t, l.waiters)
		l.mu.Unlock()
	})
}

// A release that is under way is not sent again, and one that fails is sent again ever more rarely.
func TestFaults_releasesAreFew(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		l := taken(t, d)
		for _, s := range stages {
			s.always(path{there: 100 * time.Millisecond})
		}
		for range 3 {
			go func() { assert.NoError(t, l.Release(context.Background())) }()
		}
		time.Sleep(time.Second)
		assert.Equal(t, 1, stages[0].counted(releaseIt))
		stages[0].on(nil)
		stages[1].on(nil)
		l = taken(t, d)
		stages[2].always(path{err: errRefused})
		require.NoError(t, l.Release(t.Context()))
		time.Sleep(2 * ttl)
		assert.Less(t, stages[2].counted(releaseIt), 20)
	})
}

// With client libraries that end no request: what is not answered in time has failed nevertheless.
func TestFaults_heedlessMajorityHangs(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		synctest.Wait()
		nodes[0].set(func(n *fakeNode) { n.silent = true })
		nodes[1].set(func(n *fakeNode) { n.silent = true })
		start := time.Now()
		require.ErrorContains(t, l.Extend(t.Context(), ttl), "no answer within 500ms")
		require.ErrorContains(t, l.Release(t.Context()), "no answer within 500ms")
		assert.Equal(t, time.Second, time.Since(start))
	})
}

// An Extend does not wait for a node that has not answered the attempt in time, and may never.
func TestFaults_extendWhileAnAttemptIsOverdue(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		nodes[2].set(func(n *fakeNode) { n.silent = true })
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		time.Sleep(time.Second)
		nodes[1].set(func(n *fakeNode) { n.err = errRefused })
		start := time.Now()
		require.ErrorContains(t, l.Extend(t.Context(), ttl), "c:1: no answer within 500ms")
		assert.Zero(t, time.Since(start))
		nodes[1].set(func(n *fakeNode) { n.err = nil })
		require.NoError(t, l.Release(t.Context()))
	})
}

// A node that hung for long is asked again, and is as good as the others when it answers.
func TestFaults_nodeThatHungIsAskedAgain(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		stages[2].always(hung)
		for range 2 * patience {
			l, err := d.Acquire(t.Context(), askFor("x"))
			require.NoError(t, err)
			require.NoError(t, l.Release(t.Context()))
			time.Sleep(time.Second)
		}
		stages[2].on(nil)
		time.Sleep(ttl)
		taken(t, d)
		assert.True(t, stages[2].has("x"))
	})
}

// What is begun when Close has given up waiting ends at once.
func TestFaults_roundsAfterTheLast(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		for _, s := range stages {
			s.always(hung)
		}
		d.shut()
		start := time.Now()
		_, err := d.Acquire(t.Context(), askFor("x"))
		require.ErrorContains(t, err, "no answer within")
		assert.Zero(t, time.Since(start))
		d.shut()
	})
}

// Close waits for a request that a client library does not end, and for what its answer leads to.
func TestFaults_closeWaitsForAHeedlessClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := newFakeDriver(t, 3)
		nodes[2].set(func(n *fakeNode) { n.delay = 2 * time.Second })
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		require.NoError(t, l.Release(t.Context()))
		start := time.Now()
		require.NoError(t, d.Close())
		assert.Equal(t, 4*time.Second, time.Since(start), "for the grant, and its release")
		assert.Zero(t, holders(nodes))
	})
}

// Workers are kept for the next call, no more of them than may be idle, and for a while.
func TestFaults_workersAreKept(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		for _, s := range stages {
			s.always(path{back: time.Millisecond}) // all requests are under way at once
		}
		for range 3 {
			for range 50 {
				go func() { _, _ = d.Acquire(context.Background(), askFor("x")) }()
			}
			time.Sleep(ttl / 2)
			synctest.Wait()
			assert.Equal(t, 3*idlePerNode, d.workers.Idle())
			time.Sleep(2 * ttl)
			synctest.Wait()
			assert.Zero(t, d.workers.Idle())
		}
	})
}
