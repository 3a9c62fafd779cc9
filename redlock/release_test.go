package redlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRelease_goesOnInTheBackgroundUntilTheNodeAnswers(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		synctest.Wait()
		nodes[2].set(func(n *fakeNode) { n.err = errRefused })
		require.NoError(t, l.Release(t.Context()))
		time.Sleep(3 * time.Second)
		assert.True(t, nodes[2].held())
		nodes[2].set(func(n *fakeNode) { n.err = nil })
		time.Sleep(longPause)
		assert.False(t, nodes[2].held())
		synctest.Wait()
		tries := nodes[2].count[releaseIt]
		time.Sleep(2 * ttl)
		synctest.Wait()
		assert.Equal(t, tries, nodes[2].count[releaseIt])

		l, err = d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		synctest.Wait()
		nodes[2].set(func(n *fakeNode) { n.err = errRefused })
		require.NoError(t, l.Release(t.Context()))
		time.Sleep(ttl)
		synctest.Wait()
		tries = nodes[2].count[releaseIt]
		time.Sleep(ttl)
		synctest.Wait()
		assert.Equal(t, tries, nodes[2].count[releaseIt], "the lock has expired by then")
	})
}

func TestRelease_hasTheValuesOfItsContext(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		traced := func(s string) context.Context { return context.WithValue(t.Context(), ctxKey{}, s) }
		l, err := d.Acquire(traced("lock"), askFor("x"))
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, l.Extend(traced("extend"), ttl))
		synctest.Wait() // what a node is told of later is released in the background
		require.NoError(t, l.Release(traced("unlock")))
		synctest.Wait()
		for _, n := range nodes {
			n.set(func(n *fakeNode) { assert.Equal(t, "unlock", n.traced) })
		}
	})
}

// A release is a success when a majority has confirmed it; the others are not cut off by Close.
func TestClose_letsReleasesArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, nodes := newFakeDriver(t, 5)
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, l.Extend(t.Context(), ttl), "from which all nodes count")
		synctest.Wait()
		nodes[3].set(func(n *fakeNode) { n.delay, n.heeds = 200*time.Millisecond, true })
		nodes[4].set(func(n *fakeNode) { n.delay, n.heeds = time.Hour, true })
		require.NoError(t, l.Release(t.Context()))
		start := time.Now()
		require.NoError(t, d.Close())
		assert.Equal(t, 500*time.Millisecond, time.Since(start), "and no longer, for one that hangs")
		assert.Equal(t, 1, holders(nodes))
	})
}
