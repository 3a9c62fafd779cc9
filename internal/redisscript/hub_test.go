package redisscript

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/redisscript/wait"
	"github.com/go-locker/locker/internal/test/claims"
)

// The reply to a first request is slow. Meanwhile others of the client have subscribed, and the
// one that asked is handed the lock.
func TestWaiting_aClaimThatOvertakesTheReplyToItsWaiterIsNotDeclined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := make(chan struct{})
		var declined atomic.Bool
		var asked atomic.Int32
		first := ""
		d, w := wired(t, func(_ context.Context, c script.Call) (any, error) {
			switch owner := ownerOf(c); {
			case c.Script == script.Release:
				declined.Store(declined.Load() || owner == ">"+first)
				return int64(1), nil
			case asked.Add(1) == 1:
				first = owner
				<-slow
				return heldReply(1), nil
			case owner == first && !declined.Load():
				return grantedReply(), nil
			}
			return heldReply(2), nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := queued(ctx, d, time.Minute)
		synctest.Wait()
		other := queued(ctx, d, time.Minute)
		synctest.Wait()
		w.events <- wait.Event{Kind: wait.Message, Channel: channelOf(d), Message: first}
		synctest.Wait() // a decline would be sent by now, or not at all
		overtaken := time.Now()
		close(slow)
		require.NoError(t, <-done)
		assert.Zero(t, time.Since(overtaken), "it was woken, and did not happen to look")
		assert.False(t, declined.Load(), "what was claimed for a waiter that lives was declined")
		cancel()
		require.Error(t, <-other)
	})
}

// Nobody pays for a subscription that is not used: not the server, and not the process, which has no
// goroutine and no timer left. As long as somebody waits it gets a sign of life now and then.
func TestWaiting_givesUpAfterUse(t *testing.T) {
	const heartbeat, idleTime = 5 * time.Second, 10 * time.Second // of package wait
	synctest.Test(t, func(t *testing.T) {
		d, w := wired(t, func(context.Context, script.Call) (any, error) { return heldReply(7), nil })
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.ErrorIs(t, <-queued(ctx, d, time.Second), context.DeadlineExceeded)
		assert.InDelta(t, time.Minute/heartbeat, w.pings.Load(), 1)

		time.Sleep(idleTime - time.Second)
		assert.False(t, w.isClosed(), "it may be wanted again")
		time.Sleep(3 * heartbeat)
		assert.True(t, w.isClosed())
	})
}

// waitersOf are n waiters of one Driver, which stand in the queue and are subscribed. a is the
// server's answer to whatever they ask from then on.
func waitersOf(t *testing.T, n int, a answer) (d *Driver, w *wire, done []<-chan error) {
	t.Helper()
	var standing atomic.Bool
	d, w = wired(t, func(ctx context.Context, c script.Call) (any, error) {
		if !standing.Load() {
			return heldReply(7), nil
		}
		return a(ctx, c)
	})
	for range n {
		done = append(done, queued(t.Context(), d, time.Hour))
		synctest.Wait()
	}
	standing.Store(true)
	return d, w, done
}

// It would be passed over for ever by those who are subscribed.
func TestWaiting_oneThatCannotConnectToSubscribePolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := 0
		d := driverOf(t, &puppet{
			dial: func(context.Context) (wait.Subscription, error) { return nil, errors.New("no more connections") },
			answer: func(_ context.Context, c script.Call) (any, error) {
				switch {
				case c.Script == script.Release:
					released++
					return int64(1), nil
				case ownerOf(c)[0] == script.Polls:
					assert.Equal(t, 1, released, "the owner that it was leaves the queue")
					return grantedReply(), nil
				default:
					return heldReply(7), nil
				}
			},
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, <-queued(ctx, d, time.Hour))
	})
}

func TestWaiting_whatIsClaimedForOneThatWaitsNoMoreIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var given []string
		d, w, done := waitersOf(t, 1, func(_ context.Context, c script.Call) (any, error) {
			if c.Script == script.Release {
				given = append(given, ownerOf(c))
			}
			return grantedReply(), nil
		})
		w.events <- wait.Event{Kind: wait.Message, Channel: channelOf(d), Message: "pP/gone"}
		require.NoError(t, <-done[0], "with its next look")
		assert.Equal(t, []string{">pP/gone"}, given)
	})
}

// Those behind it lost theirs when it did; and that happened because their subscription is to a
// server that does not publish.
func TestWaiting_oneThatHasLostItsPlaceHasTheOthersLookAndSubscribesAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		asked := map[string]time.Time{}
		_, w, done := waitersOf(t, 2, func(_ context.Context, c script.Call) (any, error) {
			mu.Lock()
			defer mu.Unlock()
			if _, again := asked[ownerOf(c)]; again || len(asked) == 2 {
				return grantedReply(), nil
			}
			asked[ownerOf(c)] = time.Now()
			back := heldReply(7)
			back[4] = int64(1)
			return back, nil
		})
		for _, each := range done {
			require.NoError(t, <-each)
		}
		times := slices.Collect(maps.Values(asked))
		require.Len(t, times, 2)
		assert.Equal(t, times[0], times[1], "at once")
		assert.True(t, w.isClosed())
	})
}

// While its slot moves a waiter is told the place 0: it has none at the server, or nobody knows. It
// goes on asking for the one that it has, also as one that polls now.
func TestWaiting_aWaiterKeepsItsPlaceWhereTheServerKnowsNone(t *testing.T) {
	for _, c := range []struct {
		subscribing  error
		gives, asked []int64
	}{
		{errors.New("unreachable"), []int64{0, 0, 7, 0, 7, 0}, []int64{0, 0, 0, 7, 7, 7, 7}},
		{wait.ErrNoSubscriptions, []int64{7, 0, 0, 0}, []int64{0, 7, 7, 7, 7}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var asked []int64
			d := driverOf(t, &puppet{locate: c.subscribing, answer: func(_ context.Context, call script.Call) (any, error) {
				if call.Script == script.Release {
					return int64(1), nil
				}
				_, number := dueOf(call)
				if asked = append(asked, number); len(asked) <= len(c.gives) {
					return heldReply(c.gives[len(asked)-1]), nil
				}
				return grantedReply(), nil
			}})
			_, err := claims.Wait(t.Context(), d, driver.Request{Name: "x", TTL: time.Minute}, func(error) {})
			require.NoError(t, err)
			assert.Equal(t, c.asked, asked)
		})
	}
}

// held is a server on which all is held by another, and whose requests fail with *err while that is
// set.
func held(err *error) answer {
	return func(_ context.Context, c script.Call) (any, error) {
		switch {
		case *err != nil:
			return nil, *err
		case c.Script == script.Release:
			return int64(1), nil
		default:
			return heldReply(7), nil
		}
	}
}

var forOneMinute = driver.Request{Name: "x", TTL: time.Minute}

// Nothing of the hub's waits for a candidate of Redlock, or asks for it.
func TestWait_aWaiterIsToldAndNotAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, w := wired(t, held(new(error)))
		told := make(chan bool, 9)
		l := d.Candidate(forOneMinute, 7, func(kept bool) { told <- kept })
		_, err := l.Propose(t.Context(), 1)
		require.ErrorIs(t, err, driver.ErrHeld)
		require.True(t, l.Known())
		synctest.Wait()
		require.False(t, <-told, "it looks when the subscription stands")
		w.events <- wait.Event{Kind: wait.Message, Channel: channelOf(d), Message: l.(*claim).Owner}
		synctest.Wait()
		require.True(t, <-told)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.False(t, <-told)
		require.Empty(t, told, "once, until it has asked")
		require.Len(t, d.runner.(*puppet).scripts(), 1)
		require.NoError(t, l.Release(t.Context()))
		time.Sleep(time.Minute)
		assert.True(t, w.isClosed(), "nobody waits")
	})
}

// A node that cannot be reached is asked by every attempt, and none of them stays.
func TestWait_ofWhatWasNeverSentNothingIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails error
		d, w := wired(t, held(&fails))
		other := d.Candidate(forOneMinute, 7, func(bool) {})
		_, err := other.Propose(t.Context(), 1)
		require.ErrorIs(t, err, driver.ErrHeld, "there is a wait list")
		fails = notSent{errors.New("connection refused")}
		l := d.Candidate(forOneMinute, 7, func(bool) {})
		for range 3 {
			_, err := l.Propose(t.Context(), 1)
			require.ErrorContains(t, err, "connection refused")
		}
		require.False(t, l.Known())
		fails = nil
		require.NoError(t, other.Release(t.Context()))
		time.Sleep(time.Minute)
		assert.True(t, w.isClosed(), "nobody waits")
	})
}

// It is told to look once, and asks. If that fails, it is told again, for nobody else of the wait
// list looks.
func TestWait_aWaiterWhoseRequestFailsIsToldToLookAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails error
		d, _ := answering(t, held(&fails))
		var told atomic.Int32
		l := d.Candidate(forOneMinute, 7, func(bool) { told.Add(1) })
		for range 2 {
			_, err := l.Propose(t.Context(), 1)
			require.ErrorIs(t, err, driver.ErrHeld)
			synctest.Wait()
			require.EqualValues(t, 1, told.Load(), "that there are no subscriptions: it asks again, as one that polls")
		}
		fails = errors.New("connection reset")
		for range 3 {
			before := told.Load()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			require.Equal(t, before+1, told.Load(), "once, until it has asked")
			_, err := l.Propose(t.Context(), 1)
			require.ErrorContains(t, err, "connection reset")
		}
	})
}

// A holder that asks for waiters looks by itself until its subscription stands, and where there is
// none.
func TestNotifyWait_next(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		holds := func(_ context.Context, c script.Call) (any, error) {
			if c.Script == script.Notify {
				return int64(0), nil
			}
			return grantedReply(), nil
		}
		subscribed, _ := wired(t, holds)
		refused, p := answering(t, holds)
		for d, want := range map[*Driver]time.Duration{subscribed: time.Minute, refused: 0} {
			l, err := claims.Take(t.Context(), d, forOneMinute)
			require.NoError(t, err)
			var woken atomic.Int32
			for _, want := range []time.Duration{0, want} {
				_, next, err := l.(driver.WaitNotifier).NotifyWait(t.Context(), func() { woken.Add(1) })
				require.NoError(t, err)
				assert.Equal(t, want, next)
				synctest.Wait()
			}
			assert.Equal(t, want > 0, woken.Load() == 1, "it has missed what was published before")
		}
		assert.Empty(t, p.sent[len(p.sent)-1].Args[1], "no message is asked for")
	})
}
