package redlock

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/workers"
)

// What was given back is not counted, though the node has accepted the larger token meanwhile.
func TestTurn_aRaiseThatIsAnsweredAfterTheLockWasGivenBackDoesNotCount(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		for _, s := range stages[1:] {
			s.on(func(v verb, _ string) path {
				return path{back: map[verb]time.Duration{propose: 10 * time.Millisecond, raiseIt: 300 * time.Millisecond}[v]}
			})
		}
		ahead := uint64(time.Now().Add(time.Second).UnixMicro())
		stages[0].edit("x", func(r *register) { r.known, r.last = true, ahead })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		l, w := d.attempt(ctx, askFor("x"), &turn{place: 5, answered: func(error) {}})
		time.Sleep(20 * time.Millisecond)
		l.mu.Lock()
		require.Equal(t, 2, l.ballot.in(raising))
		for _, s := range stages {
			s.always(path{err: errRefused})
		}
		l.giveBack(-1)
		l.plan()
		l.mu.Unlock()
		time.Sleep(time.Second)
		l.mu.Lock()
		for i := range l.seats {
			assert.Equal(t, l.seats[i].lease != nil, l.ballot.votes[i].state == granted, "node %d: %v", i, l.ballot.votes[i])
		}
		l.mu.Unlock()
		for _, s := range stages {
			s.always(path{})
		}
		require.NoError(t, l.wait(ctx, w))
		require.NoError(t, l.Release(ctx))
	})
}

// A client library that ignores contexts keeps requests for as long as nodes hang.
func TestTurn_endsThoughNoRequestReturns(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		for _, n := range nodes {
			n.set(func(n *fakeNode) { n.silent = true })
		}
		w := wait(t, d)
		time.Sleep(ttl/2 + 2*longLook)
		require.True(t, w.isOver(), "no majority has answered for TTL/2")
		var e *Error
		require.ErrorAs(t, w.err, &e)
		require.Len(t, e.Votes, 3)
		w.cancel()
	})
}

// It is in the queue, and is asked only when it looks.
func TestTurn_inTheQueueEndsThoughNoRequestReturns(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		for _, n := range nodes {
			n.set(func(n *fakeNode) { ownedBy(another, 0)(&n.reg); n.reg.until = time.Now().Add(time.Hour).UnixNano() })
		}
		w := wait(t, d)
		require.True(t, w.told(isHeld))
		for _, n := range nodes {
			n.set(func(n *fakeNode) { n.silent = true })
		}
		time.Sleep(ttl/2 + 3*longLook)
		require.True(t, w.isOver(), "no majority has answered for TTL/2")
		var e *Error
		require.ErrorAs(t, w.err, &e)
		w.cancel()
	})
}

// The place is given up at a node that is asked by one at a time, too.
func TestTurn_leavesTheQueueOfANodeThatWasNotAskedAgain(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		for _, s := range stages {
			s.edit("x", ownedBy(another, 0))
		}
		var withholds atomic.Bool
		withheld := make(chan workers.Call, 10)
		do := d.do
		d.do = func(c workers.Call) {
			if _, request := c.(*call); request && withholds.Load() {
				withheld <- c
			} else {
				do(c)
			}
		}
		w := wait(t, d)
		withholds.Store(true)
		time.Sleep(1200 * time.Millisecond) // it looks
		synctest.Wait()
		withholds.Store(false)
		w.cancel()
		synctest.Wait()
		n := d.nodes[0]
		n.mu.Lock()
		n.silent, n.inFlight = patience, n.inFlight+1
		n.mu.Unlock()
		for len(withheld) > 0 {
			do(<-withheld)
			synctest.Wait()
		}
		n.mu.Lock()
		n.silent, n.inFlight = 0, n.inFlight-1
		n.mu.Unlock()
		w.leave()
		time.Sleep(2 * time.Second)
		for i, s := range stages {
			s.edit("x", func(r *register) { assert.Empty(t, r.queue, "node %d", i) })
		}
	})
}

// A node that comes back empty grants the lock to who waits for the hold that the others have. They do not make requests as fast as they can.
func TestTurn_ofANodeThatHasForgottenTheHoldIsCalm(t *testing.T) {
	play(t, 5, func(t *testing.T, d *Driver, stages []*stage) {
		var all []*waiting
		for range 5 {
			all = append(all, wait(t, d))
			time.Sleep(time.Millisecond)
		}
		require.True(t, all[0].isOver())
		time.Sleep(time.Second)
		stages[0].edit("x", func(r *register) { r.forget() })
		before := total(stages)
		const seconds = 3
		time.Sleep(seconds * time.Second)
		n := (total(stages) - before) / len(stages) / seconds
		t.Log("requests a second to each node:", n)
		assert.Less(t, n, 40, "requests a second to each node")
		for _, w := range all {
			w.leave()
		}
	})
}

// Of a hold that was abandoned nobody gives back the places.
func TestTurn_ofAHoldThatHasExpiredIsGivenUp(t *testing.T) {
	play(t, 5, func(t *testing.T, d *Driver, stages []*stage) {
		stages[4].edit("x", func(r *register) { ownedBy(another, 0)(r); r.until = time.Now().Add(time.Hour).UnixNano() })
		w := wait(t, d)
		require.NoError(t, w.err)
		stages[4].edit("x", func(r *register) { require.Len(t, r.queue, 1) })
		time.Sleep(ttl + 2*time.Second)
		stages[4].edit("x", func(r *register) { assert.Empty(t, r.queue) })
	})
}

// A place in a queue is not the lock: that it is given up confirms no hold.
func TestRelease_doesNotCountANodeThatOnlyHadAPlace(t *testing.T) {
	play(t, 5, func(t *testing.T, d *Driver, stages []*stage) {
		for _, s := range stages[3:] {
			s.edit("x", func(r *register) { ownedBy(another, 0)(r); r.until = time.Now().Add(time.Hour).UnixNano() })
		}
		w := wait(t, d)
		require.NoError(t, w.err)
		stages[2].always(path{err: errRefused})
		var e *Error
		require.ErrorAs(t, w.lease.Release(t.Context()), &e, "two of five confirm that they had it until now")
		stages[2].always(path{})
		time.Sleep(2 * time.Second)
		for i, s := range stages {
			s.edit("x", func(r *register) { assert.Empty(t, r.queue, "node %d", i) })
		}
		assert.False(t, stages[2].has("x"))
	})
}
