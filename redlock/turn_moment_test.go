package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// early has every pause be the shortest that it may be, so that a test knows when a waiter looks: 2.5 ms after the first grant, then after twice
// as long, and so on.
func early(d *Driver) { d.random = func(int64) int64 { return 0 } }

// differ has nodes accept different tokens: the first is a second ahead.
func differ(stages []*stage) {
	ahead := uint64(time.Now().Add(time.Second).UnixMicro())
	stages[0].edit("x", func(r *register) { r.known, r.last = true, ahead })
}

// slowly has requests of that kind be answered after a while.
func slowly(s *stage, v verb, back time.Duration) {
	s.on(func(asked verb, _ string) path {
		if asked == v {
			return path{back: back}
		}
		return path{}
	})
}

// released returns how many releases have reached the nodes.
func released(stages []*stage) (n int) {
	for _, s := range stages {
		n += s.counted(releaseIt)
	}
	return n
}

// A majority has granted the lock under different tokens. That another node has an earlier waiter does not matter any more.
func TestTurn_doesNotYieldWhatAMajorityHasGranted(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		early(d)
		differ(stages)
		stages[1].on(func(v verb, _ string) path {
			return path{back: map[verb]time.Duration{propose: 10 * time.Millisecond, raiseIt: 300 * time.Millisecond}[v]}
		})
		stages[2].edit("x", ownedBy(another, first))
		w := wait(t, d)
		slowly(stages[2], propose, 20*time.Millisecond) // the answer to its first look
		time.Sleep(320 * time.Millisecond)
		require.True(t, w.isOver())
		require.NoError(t, w.err)
		assert.Zero(t, released(stages))
		w.leave()
	})
}

// The second round of an attempt, in which tokens are raised, has a time-out of its own.
func TestTurn_waitsForARaiseAsLongAsForAGrant(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		early(d)
		differ(stages)
		const there, raised = 350 * time.Millisecond, 350 * time.Millisecond
		stages[1].on(func(v verb, _ string) path {
			return path{back: map[verb]time.Duration{propose: there, raiseIt: raised}[v]}
		})
		stages[2].edit("x", ownedBy(another, last))
		w := wait(t, d)
		time.Sleep(there + raised + time.Millisecond)
		require.True(t, w.isOver(), "after more than the time-out of one round")
		require.NoError(t, w.err)
		assert.Zero(t, released(stages))
		w.leave()
	})
}

// A waiter that a node does not answer looks now and then. When it is granted something it looks soon.
func TestTurn_looksSoonAfterTheFirstGrantHoweverLongItHasWaited(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		early(d)
		for _, s := range stages[:2] {
			s.edit("x", func(r *register) { ownedBy(another, 0)(r); r.until = time.Now().Add(time.Hour).UnixNano() })
		}
		stages[2].always(path{err: errRefused})
		w := wait(t, d)
		time.Sleep(ttl)
		for before := stages[2].counted(propose); stages[2].counted(propose) == before; {
			time.Sleep(time.Millisecond)
		}
		stages[0].edit("x", freed)
		time.Sleep(2 * time.Millisecond) // a message takes one
		require.NotZero(t, stages[0].ownerOf("x"))
		stages[1].edit("x", keptQuietly)
		time.Sleep(2 * shortLook)
		require.True(t, w.isOver())
		w.leave()
	})
}

// The node that is asked later is asked to accept the token that the first has accepted, so that none has to be raised.
func TestTurn_proposesTheTokenThatANodeHasAccepted(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		stages[1].edit("x", ownedBy(another, last))
		stages[2].edit("x", ownedBy(another, last))
		w := wait(t, d)
		time.Sleep(20 * time.Millisecond)
		stages[1].edit("x", freed)
		time.Sleep(10 * time.Millisecond)
		require.True(t, w.isOver())
		require.NoError(t, w.err)
		for i, s := range stages {
			assert.Zero(t, s.counted(raiseIt), "node %d", i)
		}
		w.leave()
	})
}

// The first message has the waiter ask all nodes. After that each has it ask its own node: the others have been asked.
func TestTurn_aHandOverCostsANodeTwoRequests(t *testing.T) {
	play(t, 5, func(t *testing.T, d *Driver, stages []*stage) {
		d.random = func(n int64) int64 { return n - 1 } // no look comes in between
		for _, s := range stages {
			s.edit("x", ownedBy(another, 0))
		}
		w := wait(t, d)
		require.Equal(t, 5, total(stages))
		for _, s := range stages {
			s.edit("x", freed)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(10 * time.Millisecond)
		require.True(t, w.isOver())
		require.NoError(t, w.err)
		for i, s := range stages {
			require.True(t, s.has("x"), "node %d", i)
			assert.LessOrEqual(t, s.counted(propose), 3, "node %d: that with which the wait began, and two", i)
		}
		w.leave()
	})
}

// While answers of so many nodes are to come that they may decide, it asks no node again.
func TestTurn_waitsForAnswersBeforeItLooks(t *testing.T) {
	play(t, 5, func(t *testing.T, d *Driver, stages []*stage) {
		early(d)
		for _, s := range stages {
			s.edit("x", ownedBy(another, last))
		}
		w := wait(t, d)
		time.Sleep(10 * time.Millisecond)
		for _, s := range stages[2:] {
			slowly(s, propose, 100*time.Millisecond)
		}
		stages[0].edit("x", freed)
		time.Sleep(50 * time.Millisecond)
		require.NotZero(t, stages[0].counted(propose))
		assert.Equal(t, 2, stages[1].counted(propose), "the first, and one after the message")
		w.leave()
	})
}

// It looks when a message that is on its way would be here.
func TestTurn_looksByTheTimeThatAnAnswerTakes(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		early(d)
		const back = 100 * time.Millisecond
		for _, s := range stages {
			s.always(path{back: back})
		}
		for _, s := range stages[1:] {
			s.edit("x", ownedBy(another, last))
		}
		w := wait(t, d)
		time.Sleep(2*back - time.Millisecond)
		require.Equal(t, 3, total(stages))
		time.Sleep(2 * time.Millisecond)
		require.Equal(t, 5, total(stages))
		w.leave()
	})
}

// A message that came while a node was asked has it asked once more, and not again and again.
func TestTurn_asksOnceMoreForAMessage(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		const back = 50 * time.Millisecond
		for _, s := range stages {
			s.edit("x", ownedBy(another, last))
			s.always(path{back: back})
		}
		w := wait(t, d)
		time.Sleep(back / 2)
		stages[0].edit("x", freed)
		stages[0].edit("x", func(r *register) { r.kept = inQueue{}; ownedBy(another, last)(r) })
		time.Sleep(900 * time.Millisecond)
		assert.Equal(t, 2, stages[0].counted(propose))
		w.leave()
	})
}

// The earlier one has taken what was given back to it, and released it. That was not in vain.
func TestTurn_yieldsAgainAfterTheEarlierOneHadIt(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		early(d)
		for _, s := range stages[1:] {
			s.edit("x", ownedBy(another, first))
		}
		w := wait(t, d)
		for i := range uint64(3) {
			stages[0].edit("x", waitsAt(another+i, first))
			time.Sleep(50 * time.Millisecond)
			require.Equal(t, first, stages[0].keptPlace("x"), "given back after %d times", i)
			time.Sleep(1100 * time.Millisecond) // it looks, and is told that there is an earlier one
			stages[0].edit("x", func(r *register) { r.kept = inQueue{}; freed(r) })
			time.Sleep(2 * time.Millisecond) // a message takes one, and the first look comes later
			require.NotZero(t, stages[0].ownerOf("x"))
		}
		w.leave()
	})
}

// The node of a wrong clock is left out of the majority, and its token not proposed to those that join the hold.
func TestTurn_aHoldJoinsUnderItsOwnToken(t *testing.T) {
	play(t, 5, func(t *testing.T, d *Driver, stages []*stage) {
		now := time.Now()
		for _, s := range stages[1:4] {
			s.edit("x", func(r *register) { r.most, r.clock = uint64(now.Add(time.Hour).UnixMicro()), uint64(now.UnixMicro()) })
			s.always(path{back: time.Millisecond}) // so that the first grants before them
		}
		stages[0].edit("x", func(r *register) { r.known, r.last = true, uint64(now.Add(48*time.Hour).UnixMicro()) })
		stages[4].edit("x", ownedBy(another, first))
		w := wait(t, d)
		time.Sleep(3 * time.Millisecond) // a round to take the lock, one to raise tokens in vain
		require.True(t, w.isOver())
		require.NoError(t, w.err)
		stages[4].edit("x", freed)
		time.Sleep(10 * time.Millisecond)
		stages[4].edit("x", func(r *register) {
			require.True(t, r.left(time.Now().UnixNano()))
			assert.Equal(t, w.lease.Token(), r.last)
		})
		w.leave()
	})
}

// A place that is given up because the hold ends while its node is asked confirms nothing either.
func TestRelease_doesNotCountAPlaceWhoseRequestWasUnderWay(t *testing.T) {
	play(t, 5, func(t *testing.T, d *Driver, stages []*stage) {
		for _, s := range stages[3:] {
			s.edit("x", func(r *register) { ownedBy(another, 0)(r); r.until = time.Now().Add(time.Hour).UnixNano() })
		}
		w := wait(t, d)
		require.NoError(t, w.err)
		const back = 100 * time.Millisecond
		slowly(stages[3], propose, back)
		time.Sleep(time.Second + back/2) // it looks
		stages[2].always(path{err: errRefused})
		var e *Error
		require.ErrorAs(t, w.lease.Release(t.Context()), &e, "two of five confirm that they had it until now")
		stages[2].always(path{})
		time.Sleep(2 * time.Second)
		stages[3].edit("x", func(r *register) { assert.Empty(t, r.queue) })
	})
}
