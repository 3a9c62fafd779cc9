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
	"github.com/go-locker/locker/internal/test/claims"
)

func TestWaiting_yieldsToAnEarlierPlace(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		edit(stages[1:], ownedBy(another, first))
		w := wait(t, d)
		require.NotZero(t, stages[0].owner())
		stages[0].edit(waitsAt(another, first))
		time.Sleep(50 * time.Millisecond)
		stages[0].edit(func(r *register) {
			assert.Equal(t, first, r.kept.place, "given back to the earlier one")
			require.Len(t, r.queue, 1, "it is in the queue again")
		})
		time.Sleep(350 * time.Millisecond)
		assert.Equal(t, 1, stages[0].counted(releaseIt), "it does not yield again within a time-out: the earlier one has not come")
		w.leave()
	})
}

// It tries again, and goes on to, as long as there is no majority.
func TestWaiting_takesAgainWhatItHasGivenBack(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		edit(stages[1:], ownedForLong)
		w := wait(t, d)
		time.Sleep(ttl)
		assert.Greater(t, stages[0].counted(releaseIt), 3)
		edit(stages[1:], nowFree)
		time.Sleep(2 * maxPoll)
		w.wantGranted(t)
	})
}

// A node whose message is lost is asked when another's comes.
func TestWaiting_oneMessageOfANodeIsEnough(t *testing.T) {
	play(t, 5, func(t *testing.T, d *backend, stages []*stage) {
		edit(stages, ownedBy(another, 0))
		w := wait(t, d)
		edit(stages[1:], keptQuietly)
		stages[0].edit(nowFree)
		time.Sleep(2 * time.Millisecond) // a message takes one
		w.wantGranted(t)
	})
}

// The message overtakes the answer to the request before.
func TestWaiting_aMessageThatComesWhileANodeIsAskedIsHeeded(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		const back = 100 * time.Millisecond
		for _, s := range stages {
			s.edit(ownedBy(another, 0))
			s.always(path{back: back})
		}
		w := wait(t, d)
		time.Sleep(back / 2)
		edit(stages, nowFree)
		time.Sleep(back/2 + back + 10*time.Millisecond)
		w.wantGranted(t)
	})
}

func TestWaiting_anEndedWaitLeavesNothing(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		stages[1].edit(ownedForLong)
		stages[2].edit(ownedForLong)
		w := wait(t, d)
		assert.True(t, w.told(isHeld))
		time.Sleep(2 * ttl)
		w.cancel()
		<-w.done
		require.ErrorIs(t, w.err, context.Canceled)
		assert.Equal(t, ttl, w.lease.Validity(), "what it was granted last may last for a TTL from now")
		require.NoError(t, w.lease.Release(t.Context()))
		time.Sleep(time.Second)
		assert.Zero(t, stages[0].owner())
		edit(stages, func(r *register) { assert.Empty(t, r.queue) })
		before := total(stages)
		time.Sleep(time.Minute)
		assert.Equal(t, before, total(stages), "nothing asks any more")
	})
}

// A short outage is ridden out. It makes no difference whether a client library ends requests, and
// whether the waiter is in the queue already.
func TestWaiting_silenceOfAMajorityEndsTheWait(t *testing.T) {
	for name, c := range map[string]struct {
		path
		queued bool
	}{
		"at once":                        {hung, false},
		"in the queue":                   {hung, true},
		"at once, without contexts":      {path{there: time.Hour, heedless: true}, false},
		"in the queue, without contexts": {path{there: time.Hour, heedless: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
				edit(stages, ownedForLong)
				silence := func() {
					always(stages[:2], c.path)
				}
				if !c.queued {
					silence()
				}
				w := wait(t, d)
				assert.Equal(t, c.queued, w.told(isHeld))
				silence()
				start := time.Now()
				time.Sleep(ttl/2 - maxPoll)
				require.False(t, w.isOver())
				<-w.done
				assert.InDelta(t, ttl/2, time.Since(start), float64(longestTimeout+3*maxPoll))
				assert.True(t, w.told(func(err error) bool { var e *Error; return errors.As(err, &e) && !isHeld(err) }), "of the outage")
				var e *Error
				require.ErrorAs(t, w.err, &e)
				require.NotErrorIs(t, w.err, driver.ErrHeld)
				require.NotErrorIs(t, w.err, context.Canceled, "nobody has given up")
				require.Len(t, e.Votes, 3)
				require.ErrorIs(t, e.Votes[2].Err, driver.ErrHeld)
				setFaults(stages, "---")
				w.leave()
				time.Sleep(2 * time.Second)
				stages[2].edit(func(r *register) { assert.Empty(t, r.queue) })
			})
		})
	}
}

// The first message has the waiter ask all nodes. After that each has it ask its own node: the
// others have been asked.
func TestWaiting_aHandOverCostsANodeTwoRequests(t *testing.T) {
	play(t, 5, func(t *testing.T, d *backend, stages []*stage) {
		d.random = func(n int64) int64 { return n - 1 } // no look comes in between
		edit(stages, ownedBy(another, 0))
		w := wait(t, d)
		require.Equal(t, 5, total(stages))
		for _, s := range stages {
			s.edit(nowFree)
			time.Sleep(time.Millisecond)
		}
		time.Sleep(10 * time.Millisecond)
		require.True(t, w.isOver())
		require.NoError(t, w.err)
		for i, s := range stages {
			require.NotZero(t, s.owner(), "node %d", i)
			assert.LessOrEqual(t, s.counted(propose), 3, "node %d: that with which the wait began, and two", i)
		}
		w.leave()
	})
}

// A node that comes back empty grants the lock to who waits for the hold that the others have. They
// do not make requests as fast as they can.
func TestWaiting_ofANodeThatHasForgottenTheHoldIsCalm(t *testing.T) {
	play(t, 5, func(t *testing.T, d *backend, stages []*stage) {
		var all []*waiting
		for range 5 {
			all = append(all, wait(t, d))
			time.Sleep(time.Millisecond)
		}
		require.True(t, all[0].isOver())
		time.Sleep(time.Second)
		stages[0].forget()
		before := total(stages)
		const seconds = 3
		time.Sleep(seconds * time.Second)
		assert.Less(t, (total(stages)-before)/len(stages)/seconds, 40, "requests a second to each node")
		for _, w := range all {
			w.leave()
		}
	})
}

// A client library that ignores contexts brings the answer when it comes.
func TestWaiting_aLateGrantIsGivenBack(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		edit(stages[1:], ownedForLong)
		stages[0].always(path{back: longestTimeout + 50*time.Millisecond, heedless: true})
		w := wait(t, d)
		time.Sleep(longestTimeout + 20*time.Millisecond)
		stages[0].on(nil)
		time.Sleep(40 * time.Millisecond)
		assert.Equal(t, 1, stages[0].counted(releaseIt))
		w.leave()
	})
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		always(stages, path{back: longestTimeout + 50*time.Millisecond, heedless: true})
		w := wait(t, d)
		<-w.done
		assert.False(t, w.told(func(err error) bool {
			var e *Error
			return errors.As(err, &e) && slices.ContainsFunc(e.Votes, func(v Vote) bool { return v.Err == nil })
		}), "no node has agreed")
		w.leave()
	})
}

// A node that grants after the majority has, and before the claim is asked, joins the hold: another
// may have come and gone there.
func TestWaiting_aNodeThatJoinsBeforeTheClaimIsAskedHasJoined(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		edit(stages, ownedForLong)
		req, woken := askFor("x"), 0
		req.TTL = time.Minute
		req.Wake = func() { woken++ }
		l := d.Claim(req).(*claim)
		_, err := l.Ask(t.Context())
		require.ErrorIs(t, err, driver.ErrHeld)
		for _, s := range stages {
			s.edit(nowFree)
			time.Sleep(5 * time.Second) // nobody asks meanwhile
		}
		assert.Positive(t, woken)
		joined := func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.nodes[2].state == joined
		}
		require.True(t, joined())
		_, err = l.Ask(t.Context())
		require.NoError(t, err)
		assert.True(t, joined())
		require.NoError(t, l.Release(t.Context()))
	})
}

// Of a hold that was abandoned nobody gives back the places.
func TestWaiting_ofAHoldThatHasExpiredIsGivenUp(t *testing.T) {
	play(t, 5, func(t *testing.T, d *backend, stages []*stage) {
		stages[4].edit(ownedForLong)
		w := wait(t, d)
		require.NoError(t, w.err)
		stages[4].edit(func(r *register) { require.Len(t, r.queue, 1) })
		time.Sleep(ttl + 2*time.Second)
		stages[4].edit(func(r *register) { assert.Empty(t, r.queue) })
	})
}

// waiting is a claim that waits.
type waiting struct {
	cancel   context.CancelFunc
	done     chan struct{}
	lease    driver.Claim
	err      error
	mu       sync.Mutex
	answered []error
}

// wait has a waiter come, who is in its place when it returns.
func wait(t *testing.T, d *backend) *waiting {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	w := &waiting{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = claims.Wait(ctx, d, askFor("x"), func(err error) {
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

// wantGranted fails unless the wait has ended with a hold, and gives that back.
func (w *waiting) wantGranted(t *testing.T) {
	t.Helper()
	require.True(t, w.isOver())
	require.NoError(t, w.err)
	w.leave()
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

func ownedForLong(r *register) {
	ownedBy(another, 0)(r)
	r.until = time.Now().Add(time.Hour).UnixNano()
}

func nowFree(r *register) {
	r.owner = 0
	r.keepForFirst(time.Now().UnixNano(), 0)
}

const (
	another = 1 << 40   // an owner that is no client of the test
	first   = uint64(1) // a place before all others
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
