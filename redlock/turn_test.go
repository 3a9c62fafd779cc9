package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
)

// waiting is a call of AcquireQueued.
type waiting struct {
	cancel   context.CancelFunc
	done     chan struct{}
	lease    driver.Lease
	err      error
	mu       sync.Mutex
	answered []error
}

// wait has a waiter come, who is in its place when it returns.
func wait(t *testing.T, d *Driver) *waiting {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &waiting{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = d.AcquireQueued(ctx, askFor("x"), func(err error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.answered = append(w.answered, err)
		})
	}()
	synctest.Wait()
	return w
}

// told reports whether the waiter was answered with such an error.
func (w *waiting) told(is func(error) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.answered, is)
}

func isHeld(err error) bool { return errors.Is(err, driver.ErrHeld) }

// isOver reports whether the call has returned.
func (w *waiting) isOver() bool {
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// leave ends the wait, or the hold that came of it.
func (w *waiting) leave() {
	w.cancel()
	<-w.done
	if w.lease != nil {
		_ = w.lease.Release(context.Background()) // what a node does not answer goes on
	}
}

// ownedBy has a node keep the lock for another, for a TTL.
func ownedBy(owner, place uint64) func(r *register) {
	return func(r *register) {
		r.known, r.owner, r.place, r.until = true, owner, place, time.Now().Add(ttl).UnixNano()
	}
}

func freed(r *register) {
	r.owner = 0
	r.keepForFirst(time.Now().UnixNano(), 0)
}

// ownerOf returns who has the lock at the server, or 0.
func (s *stage) ownerOf(name string) (owner uint64) {
	s.edit(name, func(r *register) {
		if r.left(time.Now().UnixNano()) {
			owner = r.owner
		}
	})
	return owner
}

// keptPlace is the place that the server keeps the lock for, or 0.
func (s *stage) keptPlace(name string) (place uint64) {
	s.edit(name, func(r *register) { place = r.kept.place })
	return place
}

const (
	another = 1 << 40         // an owner that is no client of the test
	first   = uint64(1)       // a place before all others
	last    = uint64(1) << 62 // one after all others
)

// waitsAt has an owner that is no client of the test wait at a node.
func waitsAt(owner, place uint64) func(r *register) {
	return func(r *register) { r.enter(inQueue{owner: owner, place: place, tell: func() {}}) }
}

// keptQuietly has a node keep the lock for its first waiter, who is not told.
func keptQuietly(r *register) {
	r.owner, r.kept, r.keptUntil = 0, r.queue[0], time.Now().UnixNano()+keptFor
	r.queue = r.queue[1:]
}

func TestTurn_yieldsToAnEarlierPlace(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		for _, s := range stages[1:] {
			s.edit("x", ownedBy(another, first))
		}
		w := wait(t, d)
		require.NotZero(t, stages[0].ownerOf("x"))
		stages[0].edit("x", waitsAt(another, first))
		time.Sleep(50 * time.Millisecond)
		assert.Equal(t, first, stages[0].keptPlace("x"), "given back to the earlier one")
		stages[0].edit("x", func(r *register) { require.Len(t, r.queue, 1, "it is in the queue again") })
		w.leave()
	})
}

// One that does not wait where it was given back to is given nothing again.
func TestTurn_yieldsInVainOnceInATimeout(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		for _, s := range stages[1:] {
			s.edit("x", ownedBy(another, first))
		}
		w := wait(t, d)
		time.Sleep(400 * time.Millisecond)
		assert.Equal(t, 1, stages[0].counted(releaseIt))
		w.leave()
	})
}

func TestTurn_keepsWhatItHasForATimeoutIfNobodyIsEarlier(t *testing.T) {
	for name, place := range map[string]uint64{"a later place": last, "no place": 0} {
		t.Run(name, func(t *testing.T) {
			play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
				for _, s := range stages[1:] {
					s.edit("x", ownedBy(another, place))
				}
				w := wait(t, d)
				stages[0].edit("x", waitsAt(another, last))
				time.Sleep(ttl/timeoutsPerTTL/2 - time.Millisecond)
				require.NotZero(t, stages[0].ownerOf("x"), "half a time-out later")
				require.Zero(t, stages[0].counted(releaseIt))
				time.Sleep(longestTimeout/2 + longLook)
				require.Equal(t, last, stages[0].keptPlace("x"), "a time-out and a look later")
				w.leave()
			})
		})
	}
}

// It tries again, and goes on to, as long as there is no majority.
func TestTurn_takesAgainWhatItHasGivenBack(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		for _, s := range stages[1:] {
			s.edit("x", func(r *register) { ownedBy(another, 0)(r); r.until = time.Now().Add(time.Hour).UnixNano() })
		}
		w := wait(t, d)
		time.Sleep(ttl)
		assert.Greater(t, stages[0].counted(releaseIt), 3)
		for _, s := range stages[1:] {
			s.edit("x", freed)
		}
		time.Sleep(2 * longLook)
		require.True(t, w.isOver())
		require.NoError(t, w.err)
		w.leave()
	})
}

// A client library that ignores contexts brings the answer when it comes.
func TestTurn_aLateGrantOfAHeedlessClientIsGivenBack(t *testing.T) {
	bubble(t, 3, func(t *testing.T, d *Driver, nodes []*fakeNode) {
		for _, n := range nodes[1:] {
			n.set(func(n *fakeNode) { ownedBy(another, 0)(&n.reg) })
		}
		nodes[0].set(func(n *fakeNode) { n.delay = longestTimeout + 50*time.Millisecond })
		w := wait(t, d)
		time.Sleep(longestTimeout + 20*time.Millisecond)
		nodes[0].set(func(n *fakeNode) { n.delay = 0 })
		time.Sleep(40 * time.Millisecond)
		nodes[0].set(func(n *fakeNode) { assert.Equal(t, 1, n.count[releaseIt]) })
		w.leave()
	})
}

func TestTurn_silenceOfAMajorityEndsTheWait(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		stages[2].edit("x", func(r *register) { ownedBy(another, 0)(r); r.until = time.Now().Add(time.Hour).UnixNano() })
		for _, s := range stages[:2] {
			s.always(hung)
		}
		start := time.Now()
		w := wait(t, d)
		time.Sleep(ttl/2 - longLook)
		require.False(t, w.isOver(), "it rides out a short outage")
		assert.True(t, w.told(func(err error) bool { var e *Error; return errors.As(err, &e) && !isHeld(err) }), "of the outage")
		assert.False(t, w.told(isHeld))
		<-w.done
		assert.InDelta(t, ttl/2, time.Since(start), float64(longestTimeout+longLook))
		var e *Error
		require.ErrorAs(t, w.err, &e)
		require.NotErrorIs(t, w.err, driver.ErrHeld)
		require.Len(t, e.Votes, 3)
		require.ErrorIs(t, e.Votes[2].Err, driver.ErrHeld)
		for _, s := range stages {
			s.always(path{})
		}
		w.leave()
		time.Sleep(2 * time.Second)
		stages[2].edit("x", func(r *register) { assert.Empty(t, r.queue) })
	})
}

// An answer ends the silence of a node, also one between two failures.
func TestTurn_aMajorityThatAnswersNowAndThenIsNoOutage(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		for _, s := range stages {
			s.edit("x", func(r *register) { ownedBy(another, 0)(r); r.until = time.Now().Add(time.Hour).UnixNano() })
		}
		w := wait(t, d)
		for i := range 10 {
			for _, s := range stages {
				s.always([]path{{}, hung}[i%2])
			}
			time.Sleep(ttl / 4)
		}
		for _, s := range stages {
			s.always(path{})
		}
		time.Sleep(2 * longLook)
		require.False(t, w.isOver(), "%v", w.err)
		for _, s := range stages {
			s.edit("x", freed)
		}
		time.Sleep(10 * time.Millisecond)
		require.True(t, w.isOver())
		w.leave()
	})
}

func TestTurn_isToldThatTheLockIsHeld(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		for _, s := range stages[1:] {
			s.edit("x", ownedBy(another, 0))
		}
		w := wait(t, d)
		assert.True(t, w.told(isHeld))
		w.leave()
	})
}

// A node whose message is lost is asked when another's comes.
func TestTurn_oneMessageOfANodeIsEnough(t *testing.T) {
	play(t, 5, func(t *testing.T, d *Driver, stages []*stage) {
		for _, s := range stages {
			s.edit("x", ownedBy(another, 0))
		}
		w := wait(t, d)
		for _, s := range stages[1:] {
			s.edit("x", keptQuietly)
		}
		stages[0].edit("x", freed)
		time.Sleep(2 * time.Millisecond) // a message takes one
		require.True(t, w.isOver())
		require.NoError(t, w.err)
		w.leave()
	})
}

// The message overtakes the answer to the request before.
func TestTurn_aMessageThatComesWhileANodeIsAskedIsHeeded(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		const back = 100 * time.Millisecond
		for _, s := range stages {
			s.edit("x", ownedBy(another, 0))
			s.always(path{back: back})
		}
		w := wait(t, d)
		time.Sleep(back / 2)
		for _, s := range stages {
			s.edit("x", freed)
		}
		time.Sleep(back/2 + back + 10*time.Millisecond)
		require.True(t, w.isOver())
		require.NoError(t, w.err)
		w.leave()
	})
}

// A hold takes its turn where it only waits, when that comes, under its own token.
func TestTurn_aHoldJoinsANodeWhereItWaits(t *testing.T) {
	play(t, 5, func(t *testing.T, d *Driver, stages []*stage) {
		for _, s := range stages[3:] {
			s.edit("x", ownedBy(another, 0))
		}
		w := wait(t, d)
		require.NoError(t, w.err)
		for _, s := range stages[3:] {
			s.edit("x", freed)
		}
		time.Sleep(50 * time.Millisecond)
		for i, s := range stages[3:] {
			require.True(t, s.has("x"), "node %d", 3+i)
			s.edit("x", func(r *register) { assert.GreaterOrEqual(t, r.last, w.lease.Token()) })
		}
		for range 20 {
			require.NoError(t, w.lease.Extend(t.Context(), ttl))
			time.Sleep(time.Millisecond)
		}
		for _, s := range stages[:2] {
			s.edit("x", func(r *register) { r.forget() })
		}
		require.NoError(t, w.lease.Extend(t.Context(), ttl), "the two that have joined count")
		require.NoError(t, w.lease.Release(t.Context()))
		time.Sleep(time.Second)
		for i, s := range stages {
			assert.False(t, s.has("x"), "node %d", i)
		}
	})
}

// It is woken at a node while it asks that, and it has not its turn there.
func TestTurn_aHoldThatIsWokenWhileItAsksAsksAgain(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		stages[2].edit("x", ownedBy(another, 0))
		w := wait(t, d)
		require.NoError(t, w.err)
		const back = 100 * time.Millisecond
		stages[2].always(path{back: back})
		time.Sleep(time.Second + back/2) // it looks
		stages[2].edit("x", freed)
		time.Sleep(back + 10*time.Millisecond)
		assert.True(t, stages[2].has("x"))
		w.leave()
	})
}

func TestTurn_anEndedWaitLeavesNothing(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		stages[1].edit("x", ownedBy(another, 0))
		stages[2].edit("x", ownedBy(another, 0))
		w := wait(t, d)
		w.leave()
		require.ErrorIs(t, w.err, context.Canceled)
		time.Sleep(time.Second)
		assert.False(t, stages[0].has("x"))
		for i, s := range stages {
			s.edit("x", func(r *register) { assert.Empty(t, r.queue, "node %d", i) })
		}
		before := total(stages)
		time.Sleep(time.Minute)
		assert.Equal(t, before, total(stages), "nothing asks any more")
	})
}

// What it was granted last may last for a TTL from now, however long it has waited.
func TestTurn_whatIsLeftAfterALongWaitIsReleasedForATTL(t *testing.T) {
	play(t, 3, func(t *testing.T, d *Driver, stages []*stage) {
		for _, s := range stages[1:] {
			s.edit("x", func(r *register) { ownedBy(another, 0)(r); r.until = time.Now().Add(time.Hour).UnixNano() })
		}
		w := wait(t, d)
		time.Sleep(2 * ttl)
		w.cancel()
		<-w.done
		require.NotNil(t, w.lease)
		assert.Equal(t, ttl, w.lease.Validity())
		require.NoError(t, w.lease.Release(t.Context()))
	})
}
