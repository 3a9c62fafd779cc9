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
)

func TestExtend_raisesWhatWasGrantedLate(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
		for _, n := range nodes[:2] {
			n.set(func(n *fakeNode) { n.reg = register{known: true, last: ahead} })
		}
		nodes[2].set(func(n *fakeNode) { n.delay = 700 * time.Millisecond })
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		require.Equal(t, ahead+1, l.Token())
		time.Sleep(time.Second)
		synctest.Wait()
		require.True(t, nodes[2].held(), "kept, though late")
		require.Less(t, nodes[2].reg.last, l.Token())
		nodes[2].set(func(n *fakeNode) { n.delay = 0 })
		require.NoError(t, l.Extend(t.Context(), ttl))
		synctest.Wait()
		assert.Equal(t, l.Token(), nodes[2].reg.last)
		assert.Equal(t, []int{1, 1, 1}, []int{nodes[0].count[extendIt], nodes[1].count[extendIt], nodes[2].count[extendIt]})
		require.NoError(t, l.Release(t.Context()))
		synctest.Wait()
		assert.Zero(t, holders(nodes))
	})
}

func TestExtend_hasOthersJoin(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		nodes[2].set(func(n *fakeNode) { n.err = errRefused })
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		synctest.Wait()
		nodes[0].set(func(n *fakeNode) { n.reg.forget() })
		nodes[2].set(func(n *fakeNode) { n.err = nil })
		require.ErrorIs(t, l.Extend(t.Context(), ttl), locker.ErrLost, "one node of three has it")
		synctest.Wait()
		assert.Zero(t, holders(nodes), "and gives it back")

		l, err = d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		synctest.Wait()
		require.NoError(t, l.Extend(t.Context(), ttl), "from which the node counts that answered last")
		synctest.Wait()
		nodes[0].set(func(n *fakeNode) { n.reg.forget() })
		require.NoError(t, l.Extend(t.Context(), ttl))
		synctest.Wait()
		assert.Equal(t, 3, holders(nodes))
		assert.Equal(t, l.Token(), nodes[0].reg.last)
		require.NoError(t, l.Release(t.Context()))
		synctest.Wait()
		assert.Zero(t, holders(nodes))
	})
}

func TestExtend_ofAnExpiredLeaseRevivesNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		time.Sleep(ttl)
		require.ErrorIs(t, l.Extend(t.Context(), ttl), locker.ErrLost)
		assert.Zero(t, nodes[0].count[extendIt])
	})
}

func TestExtend_withoutAMajorityIsAnOutage(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		synctest.Wait()
		nodes[0].set(func(n *fakeNode) { n.err = errRefused })
		nodes[1].set(func(n *fakeNode) { n.err = errRefused })
		err = l.Extend(t.Context(), ttl)
		require.ErrorIs(t, err, errRefused)
		var e *Error
		require.ErrorAs(t, err, &e)
		require.NotErrorIs(t, err, locker.ErrLost)
		require.ErrorAs(t, l.Release(t.Context()), &e)
		nodes[0].set(func(n *fakeNode) { n.err = nil })
		require.NoError(t, l.Release(t.Context()), "again, and now a majority has answered")
		nodes[1].set(func(n *fakeNode) { n.err = nil })
		time.Sleep(5 * time.Second)
		assert.Zero(t, holders(nodes), "the last is released in the background")
	})
}

// So that one time-out is not that of all.
func TestExtendAll_ofManyIsARequestForEach1024(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		synctest.Wait()
		for i, err := range d.ExtendAll(t.Context(), slices.Repeat([]driver.Lease{l}, mostTogether+2), ttl) {
			require.NoError(t, err, "extension %d", i)
		}
		synctest.Wait()
		assert.Equal(t, []int{2, 2, 2}, []int{nodes[0].batched, nodes[1].batched, nodes[2].batched})
		require.NoError(t, l.Release(t.Context()))
	})
}

func TestExtendAll_isOneRequestToEachNode(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		nodes[1].set(func(n *fakeNode) { n.silent = true })
		var leases []driver.Lease
		names := []string{"x", "y", "z"}
		for range names {
			// The fakes know one name: three locks in a row, of which two are lost.
			l, err := d.Acquire(t.Context(), askFor("x"))
			require.NoError(t, err)
			leases = append(leases, l)
			synctest.Wait()
			if len(leases) < len(names) {
				nodes[0].set(func(n *fakeNode) { n.reg.owner = 0 })
				nodes[2].set(func(n *fakeNode) { n.reg.owner = 0 })
			}
		}
		errs := d.ExtendAll(t.Context(), leases, ttl)
		require.ErrorIs(t, errs[0], locker.ErrLost)
		require.ErrorIs(t, errs[1], locker.ErrLost)
		require.NoError(t, errs[2])
		synctest.Wait()
		assert.Equal(t, []int{1, 0, 1}, []int{nodes[0].batched, nodes[1].batched, nodes[2].batched})
		require.NoError(t, leases[2].Release(t.Context()))
	})
}
