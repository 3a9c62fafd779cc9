package redlock

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/memory"
)

const ttl = 10 * time.Second // and so 500 ms for a node

// bubble runs f on a Driver over n fakes, in virtual time, and wants nothing left when the Driver is closed.
func bubble(t *testing.T, n int, f func(t *testing.T, d *Driver, nodes []*fakeNode)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		d, nodes := newFakeDriver(t, n)
		f(t, d, nodes)
		for _, node := range nodes {
			node.resume()
		}
		require.NoError(t, d.Close())
		for _, node := range nodes {
			assert.True(t, node.closed.Load())
		}
	})
}

func holders(nodes []*fakeNode) int {
	n := 0
	for _, node := range nodes {
		if node.held() {
			n++
		}
	}
	return n
}

func TestNewDriver_refuses(t *testing.T) {
	_, nodes := newFakes(4)
	same, _ := newFakes(2)
	same[0].addr, same[1].addr = "H:1", "h:1"
	nameless, _ := newFakes(3)
	for _, f := range nameless {
		f.addr = ""
	}
	for _, c := range []struct {
		nodes []driver.Driver
		opts  []DriverOption
		want  string
	}{
		{nil, nil, "at least 3"},
		{nodes[:2], nil, "at least 3 nodes, and got 2"},
		{[]driver.Driver{nodes[0], nil, nodes[1]}, nil, "node 2 is nil"},
		{[]driver.Driver{nodes[0], nodes[1], nodes[0]}, nil, "nodes 1 and 3 are the same"},
		{[]driver.Driver{nodes[0], same[0], same[1]}, nil, "nodes 2 and 3 are the same, h:1"},
		{[]driver.Driver{nameless[0], nameless[1], nameless[0]}, nil, "nodes 1 and 3 are the same"},
		{[]driver.Driver{nodes[0], memory.NewDriver(), nodes[1]}, nil, "node 2, a *memory.Driver"},
		{nodes, []DriverOption{NodeTimeout(0)}, "above 0"},
		{nodes, []DriverOption{nil}, "nil DriverOption"},
	} {
		_, err := NewDriver(c.nodes, c.opts...)
		require.ErrorContains(t, err, c.want)
		var e *locker.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "new", e.Op)
		_, err = New(c.nodes)
		assert.Equal(t, c.opts == nil, err != nil)
	}
	_, err := NewDriver([]driver.Driver{nodes[0], memory.NewDriver(), nodes[1]})
	require.ErrorIs(t, err, locker.ErrUnsupported)
	for _, good := range [][]driver.Driver{nodes[:3], nodes, {nameless[0], nameless[1], nameless[2]}} {
		_, err := NewDriver(good)
		require.NoError(t, err)
	}
}

// An application that would have the guarantee, and is told that there is none, may do without.
func TestNew_leavesTheNodesToTheCallerIfItFails(t *testing.T) {
	fakes, nodes := newFakes(3)
	for _, refused := range []locker.Option{
		nil, locker.Require(locker.Exclusive), locker.WithTTL(5 * time.Millisecond), locker.Require("world peace"),
	} {
		_, err := New(nodes, refused)
		require.Error(t, err)
	}
	for _, f := range fakes {
		assert.False(t, f.closed.Load())
	}
	c, err := New(nodes)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	for _, f := range fakes {
		assert.True(t, f.closed.Load())
	}
}

func TestCheckTTL(t *testing.T) {
	for _, c := range []struct {
		timeout, ttl time.Duration
		want         []string // in the error; none: it is honoured
	}{
		{0, 30 * time.Second, nil},
		{0, 10 * time.Millisecond, nil},
		{0, 7 * time.Millisecond, nil},
		{0, 5 * time.Millisecond, []string{"at least 7ms"}},
		{500 * time.Millisecond, 30 * time.Second, nil},
		{500 * time.Millisecond, 3500 * time.Millisecond, nil},
		{500 * time.Millisecond, 2990 * time.Millisecond, []string{"TTL 2.99s", "a renewal leaves a node 427.142857ms", "at least 3.501s", "below 427.143ms"}},
		{500 * time.Millisecond, 2040 * time.Millisecond, []string{"2 × 500ms", "TTL 2.04s", "leaves 1.0176s", "at least 3.501s", "below 291.429ms"}},
		{time.Second, time.Second, []string{"leaves -1.012s", "at least 7.001s"}},
		{1450 * time.Microsecond, 10 * time.Millisecond, []string{"leaves 5ms", "more than half"}},
		{time.Millisecond, 8 * time.Millisecond, []string{"2 × 1ms", "leaves 3.92ms", "at least 9ms"}},
	} {
		d, _ := newFakeDriver(t, 3)
		d.timeout = c.timeout
		err := d.CheckTTL(c.ttl)
		if c.want == nil {
			require.NoError(t, err, "%v of %v", c.timeout, c.ttl)
			continue
		}
		require.ErrorIs(t, err, locker.ErrUnsupported)
		for _, want := range c.want {
			require.ErrorContains(t, err, want)
		}
	}
	_, nodes := newFakes(3)
	d, err := NewDriver(nodes, NodeTimeout(time.Second))
	require.NoError(t, err)
	_, err = locker.New(d, locker.WithTTL(3*time.Second))
	require.ErrorIs(t, err, locker.ErrUnsupported, "a Client refuses it")
	require.ErrorContains(t, err, "2 × 1s")
}

// What CheckTTL advises it accepts.
func TestCheckTTL_advice(t *testing.T) {
	for timeout := time.Millisecond; timeout < time.Minute; timeout = timeout*3/2 + 17*time.Microsecond {
		d, _ := newFakeDriver(t, 3, NodeTimeout(timeout))
		err := d.CheckTTL(timeout)
		require.Error(t, err)
		longer := (max((2*timeout+2*time.Millisecond)*100/49, 7*timeout) + time.Millisecond).Round(time.Millisecond)
		require.ErrorContains(t, err, fmt.Sprintf("at least %v", longer))
		require.NoError(t, d.CheckTTL(longer))
	}
}

func TestAcquire_isDecidedByAMajority(t *testing.T) {
	bubble(t, 5, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		nodes[0].set(func(n *fakeNode) { n.silent = true })
		nodes[1].set(func(n *fakeNode) { n.err = errRefused })
		start := time.Now()
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		require.NoError(t, l.Extend(t.Context(), ttl))
		require.NoError(t, l.Release(t.Context()))
		assert.Zero(t, time.Since(start), "nothing is waited for")
		assert.Zero(t, holders(nodes))
	})
}

func TestAcquire_countsTheTTLFromBeforeTheFirstRequest(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		for _, n := range nodes {
			n.set(func(n *fakeNode) { n.delay = 300 * time.Millisecond })
		}
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		assert.Equal(t, ttl-300*time.Millisecond, l.Validity())
		time.Sleep(time.Second)
		require.NoError(t, l.Extend(t.Context(), ttl))
		assert.Equal(t, ttl-300*time.Millisecond, l.Validity())
		require.NoError(t, l.Release(t.Context()))
	})
}

// A node that its request reached late has the lock for a part of the TTL only.
func TestAcquire_countsNoMoreThanItsNodesHave(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		nodes[2].set(func(n *fakeNode) { n.delay = time.Millisecond })
		for _, n := range nodes[:2] {
			n.set(func(n *fakeNode) { n.short = 700 * time.Millisecond })
		}
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		assert.Equal(t, ttl-700*time.Millisecond, l.Validity())
		require.NoError(t, l.Extend(t.Context(), ttl))
		assert.Equal(t, ttl, l.Validity())
		require.NoError(t, l.Release(t.Context()))
	})
}

// One that joins during an Extend, and has it for less than that promises, is asked to extend it.
func TestExtend_countsNoMoreThanANodeThatJoinsHas(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		nodes[2].set(func(n *fakeNode) { n.err = errRefused })
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		synctest.Wait()
		nodes[1].set(func(n *fakeNode) { n.err = errRefused })
		nodes[2].set(func(n *fakeNode) { n.err, n.short = nil, 700*time.Millisecond })
		require.NoError(t, l.Extend(t.Context(), ttl))
		nodes[2].set(func(n *fakeNode) { assert.Equal(t, 1, n.count[extendIt]) })
		require.NoError(t, l.Release(t.Context()))
	})
}

func TestAcquire_withoutAMajorityFailsAsSoonAsThatIsKnown(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		nodes[0].set(func(n *fakeNode) { n.err = errRefused })
		nodes[1].set(func(n *fakeNode) { n.err = errRefused })
		nodes[2].set(func(n *fakeNode) { n.delay = 400 * time.Millisecond })
		start := time.Now()
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.ErrorIs(t, err, errRefused)
		assert.Zero(t, time.Since(start))
		require.EqualError(t, err, "no majority of 3 nodes: a:1: connection refused; b:1: connection refused; c:1: has not answered yet")
		require.NoError(t, l.Release(t.Context()), "the third's answer is waited for")
		assert.Zero(t, holders(nodes))
		synctest.Wait()
		assert.Equal(t, 1, nodes[2].count[releaseIt])
	})
}

// One node denies and one is unreachable: whether that is an outage depends on the third.
func TestAcquire_waitsUntilAnOutageIsToldFromAHolder(t *testing.T) {
	for _, third := range []string{"silent", "denies", "grants"} {
		bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
			nodes[0].set(func(n *fakeNode) { n.denies = true }) // denies
			nodes[1].set(func(n *fakeNode) { n.err = errRefused })
			nodes[2].set(func(n *fakeNode) {
				n.delay, n.silent, n.denies = 100*time.Millisecond, third == "silent", third == "denies"
			})
			start := time.Now()
			l, err := d.Acquire(t.Context(), askFor("x"))
			if third == "silent" {
				require.NotErrorIs(t, err, locker.ErrHeld)
				require.ErrorIs(t, err, errRefused)
				require.ErrorContains(t, err, "a:1: held; b:1: connection refused; c:1: no answer within 500ms")
				assert.Equal(t, 500*time.Millisecond, time.Since(start))
				var e *Error
				require.ErrorAs(t, l.Release(t.Context()), &e, "the core tries again")
				nodes[2].resume()
				time.Sleep(time.Second)
				require.NoError(t, l.Release(t.Context()))
				assert.Zero(t, holders(nodes))
				return
			}
			require.ErrorIs(t, err, locker.ErrHeld)
			require.NotErrorIs(t, err, errRefused)
			if l != nil {
				require.NoError(t, l.Release(t.Context()))
			}
			assert.Zero(t, holders(nodes))
		})
	}
}

func TestAcquire_ofALockThatAllDenyTakesNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		synctest.Wait() // two of them were enough
		second, err := d.Acquire(t.Context(), askFor("x"))
		require.ErrorIs(t, err, locker.ErrHeld)
		if second != nil {
			require.NoError(t, second.Release(t.Context()))
		}
		require.NoError(t, l.Release(t.Context()))
		synctest.Wait()
		for _, n := range nodes {
			assert.Equal(t, 1, n.count[releaseIt], "what has denied is not released")
		}
	})
}

func TestAcquire_givesUpWithItsContext(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		for _, n := range nodes {
			n.set(func(n *fakeNode) { n.delay = 400 * time.Millisecond })
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		l, err := d.Acquire(ctx, askFor("x"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		require.NoError(t, l.Release(t.Context()))
		assert.Zero(t, holders(nodes))
	})
}

func TestAcquire_raisesToTheLargestToken(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
		for i, n := range nodes {
			n.set(func(n *fakeNode) {
				n.reg, n.delay = register{known: true, last: ahead + uint64(10*i)}, time.Duration(i)*time.Millisecond
			})
		}
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		assert.Equal(t, ahead+11, l.Token(), "of the first two that answered")
		synctest.Wait()
		assert.Equal(t, []int{1, 0, 0}, []int{nodes[0].count[raiseIt], nodes[1].count[raiseIt], nodes[2].count[raiseIt]})
		time.Sleep(time.Second)
		// The third has a larger one. It counts for an extension, for who comes next gets a larger one there.
		nodes[0].set(func(n *fakeNode) { n.err = errRefused })
		require.NoError(t, l.Extend(t.Context(), ttl))
		nodes[0].set(func(n *fakeNode) { n.err = nil })
		require.NoError(t, l.Release(t.Context()))
		next, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		assert.Greater(t, next.Token(), l.Token())
		require.NoError(t, next.Release(t.Context()))
	})
}

func TestAcquire_whoseRaiseFailsTakesNothing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
		nodes[0].set(func(n *fakeNode) { n.reg = register{known: true, last: ahead}; n.delay = 10 * time.Millisecond })
		nodes[1].set(func(n *fakeNode) { n.delay = time.Millisecond })
		nodes[2].set(func(n *fakeNode) { n.err = errRefused })
		go func() {
			time.Sleep(12 * time.Millisecond) // the raise is under way
			nodes[1].set(func(n *fakeNode) { n.denies = true })
		}()
		nodes[1].set(func(n *fakeNode) { n.delay = 5 * time.Millisecond })
		_, err := d.Acquire(t.Context(), askFor("x"))
		require.ErrorContains(t, err, "a:1 agreed; b:1: lost; c:1: connection refused")
		require.NotErrorIs(t, err, locker.ErrHeld)
		require.NotErrorIs(t, err, locker.ErrLost)
		synctest.Wait()
		time.Sleep(time.Second)
		assert.False(t, nodes[0].held())
	})
}

func TestDriver_afterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, _ := newFakeDriver(t, 3)
		l, err := d.Acquire(t.Context(), askFor("x"))
		require.NoError(t, err)
		require.NoError(t, d.Close())
		_, err = d.Acquire(t.Context(), askFor("x"))
		require.ErrorIs(t, err, locker.ErrClosed)
		require.ErrorIs(t, l.Extend(t.Context(), ttl), locker.ErrClosed)
		require.ErrorIs(t, l.Release(t.Context()), locker.ErrClosed)
	})
}

type ctxKey struct{}

func TestGuarantees(t *testing.T) {
	d, _ := newFakeDriver(t, 3)
	g := d.Guarantees()
	for _, promise := range []locker.Guarantee{locker.Exclusive, locker.Failover, locker.Fencing} {
		assert.Equal(t, "conditional: while clocks are sane, and nodes remember and evict no keys", g[promise].String())
	}
	assert.Equal(t, "conditional: while clocks are sane", g[locker.FencingDurable].String())
	assert.Equal(t, "conditional: while subscriptions hold, and nodes answer and remember", g[locker.Ordered].String())
	assert.Equal(t, locker.LevelYes, g[locker.Woken].Level)
	_, err := locker.New(d, locker.Require(locker.Fencing))
	require.ErrorIs(t, err, locker.ErrUnsupported)
}

func TestError_unwrapsToTheFailuresOfAnOutage(t *testing.T) {
	votes := []Vote{{"a:1", nil}, {"b:1", locker.ErrHeld}, {"c:1", locker.ErrLost}, {"d:1", errRefused}}
	e := &Error{Votes: votes}
	assert.Equal(t, []error{errRefused}, e.Unwrap())
	require.EqualError(t, e, "no majority of 4 nodes: a:1 agreed; b:1: held; c:1: lost; d:1: connection refused")
	e.held = true
	require.ErrorIs(t, e, locker.ErrHeld)
	require.NotErrorIs(t, e, errRefused)
	require.EqualError(t, e, "the lock is held by another owner: a:1 agreed; b:1: held; c:1: lost; d:1: connection refused")
}
