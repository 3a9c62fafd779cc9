package redisscript

import (
	"context"
	"errors"
	"maps"
	"slices"
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
		w := newWire()
		owners, slow := make(chan string, 10), make(chan struct{})
		var declined atomic.Bool
		var asked atomic.Int32
		first := ""
		p := &puppet{dial: func(context.Context) (wait.Subscription, error) { return w, nil }}
		p.run = func(ctx context.Context, s *script.Script, owner string) (any, error) {
			switch {
			case s == script.Release && len(first) > 0 && owner == ">"+first:
				declined.Store(true)
				return int64(1), nil
			case s == script.Release:
				return int64(1), nil
			case asked.Add(1) == 1:
				owners <- owner
				<-slow
				return heldReply(1), nil
			case owner == first && !declined.Load():
				return grantedReply(), nil
			}
			owners <- owner
			return heldReply(2), nil
		}
		d := NewDriver(p)
		defer func() { _ = d.Close(noClient) }()
		ctx, cancel := context.WithCancel(t.Context())
		done := queued(ctx, d, driver.Request{Name: "x", TTL: time.Minute})
		first = receive(t, owners, "the first request")
		other := queued(ctx, d, driver.Request{Name: "x", TTL: time.Minute})
		receive(t, owners, "the second request")
		channel := channelOf(d, "x")
		require.Eventually(t, func() bool { _, ok := w.channels.Load(channel); return ok }, patient, time.Millisecond)
		w.events <- wait.Event{Kind: wait.Message, Channel: channel, Message: first}
		w.events <- wait.Event{Kind: wait.Other}
		require.Eventually(t, func() bool { return len(w.events) == 0 }, patient, time.Millisecond)
		synctest.Wait() // a decline would be sent by now, or not at all
		overtaken := time.Now()
		close(slow)
		require.NoError(t, receive(t, done, "the grant"))
		assert.Zero(t, time.Since(overtaken), "it was woken, and did not happen to look")
		assert.False(t, declined.Load(), "what was claimed for a waiter that lives was declined")
		cancel()
		require.Error(t, receive(t, other, "the end of the other"))
	})
}

// Nobody pays for a subscription that is not used: not the server, and not the process, which has no
// goroutine and no timer left. As long as somebody waits it gets a sign of life now and then.
func TestWaiting_givesUpAfterUse(t *testing.T) {
	const heartbeat, idleTime = 5 * time.Second, 10 * time.Second // of package wait
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		p := &puppet{dial: func(context.Context) (wait.Subscription, error) { return w, nil }}
		p.run = func(context.Context, *script.Script, string) (any, error) { return heldReply(7), nil }
		d := NewDriver(p)
		defer func() { _ = d.Close(noClient) }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := claims.Wait(ctx, d, forOneSecond, func(error) {})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.InDelta(t, time.Minute/heartbeat, w.pings.Load(), 1)

		time.Sleep(idleTime - time.Second)
		assert.False(t, w.isClosed(), "it may be wanted again")
		time.Sleep(3 * heartbeat)
		assert.True(t, w.isClosed())
	})
}

// waitersOf are n waiters of one Driver, which stand in the queue and are subscribed. answer is the
// server's to whatever they ask from then on.
func waitersOf(t *testing.T, n int, req driver.Request, answer func(s *script.Script, owner string) (any, error)) (d *Driver, w *wire, done []<-chan error) {
	t.Helper()
	w = newWire()
	var standing atomic.Bool
	p := &puppet{dial: func(context.Context) (wait.Subscription, error) { return w, nil }}
	p.run = func(_ context.Context, s *script.Script, owner string) (any, error) {
		if !standing.Load() {
			return heldReply(7), nil
		}
		return answer(s, owner)
	}
	d = NewDriver(p)
	for range n {
		done = append(done, queued(t.Context(), d, req))
		synctest.Wait()
	}
	standing.Store(true)
	return d, w, done
}

// It would be passed over for ever by those who are subscribed.
func TestWaiting_oneThatCannotConnectToSubscribePolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		released := 0
		p := &puppet{dial: func(context.Context) (wait.Subscription, error) { return nil, errors.New("no more connections") }}
		p.run = func(_ context.Context, s *script.Script, owner string) (any, error) {
			switch {
			case s == script.Release:
				released++
				return int64(1), nil
			case owner[0] == script.Polls:
				assert.Equal(t, 1, released, "the owner that it was leaves the queue")
				return grantedReply(), nil
			default:
				return heldReply(7), nil
			}
		}
		d := NewDriver(p)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		require.NoError(t, <-queued(ctx, d, driver.Request{Name: "x", TTL: time.Hour}))
		assert.Zero(t, d.hub.Len(), "one that is granted waits no more")
		require.NoError(t, d.Close(noClient))
	})
}

func TestWaiting_whatIsClaimedForOneThatWaitsNoMoreIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var given []string
		d, w, done := waitersOf(t, 1, driver.Request{Name: "x", TTL: time.Hour}, func(s *script.Script, owner string) (any, error) {
			if s == script.Release {
				given = append(given, owner)
			}
			return grantedReply(), nil
		})
		w.events <- wait.Event{Kind: wait.Message, Channel: channelOf(d, "x"), Message: "pP/gone"}
		require.NoError(t, <-done[0], "with its next look")
		assert.Equal(t, []string{">pP/gone"}, given)
		require.NoError(t, d.Close(noClient))
	})
}

// Those behind it lost theirs when it did; and that happened because their subscription is to a
// server that does not publish.
func TestWaiting_oneThatHasLostItsPlaceHasTheOthersLookAndSubscribesAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := map[string]time.Time{}
		d, w, done := waitersOf(t, 2, driver.Request{Name: "x", TTL: time.Hour}, func(_ *script.Script, owner string) (any, error) {
			if _, again := asked[owner]; again || len(asked) == 2 {
				return grantedReply(), nil
			}
			asked[owner] = time.Now()
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
		require.NoError(t, d.Close(noClient))
	})
}

// placing is a server that gives the places of the test, one an answer, and notes with which places it was asked.
type placing struct {
	puppet

	gives []int64
	asked []any
}

func (p *placing) Run(_ context.Context, calls []script.Call, replies []script.Reply) {
	switch calls[0].Script {
	case script.Release:
		replies[0].Value = int64(1)
		return
	case script.Take, script.Propose:
		_, number := parseDue(argument(script.Take, calls[0].Args, "due"))
		p.asked = append(p.asked, number)
		if n := len(p.asked); n <= len(p.gives) {
			replies[0].Value = heldReply(p.gives[n-1])
			return
		}
	}
	replies[0].Value = grantedReply()
}

// While its slot moves a waiter is told the place 0: it has none at the server, or nobody knows. It goes on asking for the one that
// it has, also as one that polls now.
func TestWaiting_aWaiterKeepsItsPlaceWhereTheServerKnowsNone(t *testing.T) {
	const none, seven = int64(0), int64(7)
	for _, c := range []struct {
		subscribing error
		gives       []int64
		asked       []any
	}{
		{errors.New("unreachable"), []int64{0, 0, 7, 0, 7, 0}, []any{none, none, none, seven, seven, seven, seven}},
		{wait.ErrNoSubscriptions, []int64{7, 0, 0, 0}, []any{none, seven, seven, seven, seven}},
	} {
		synctest.Test(t, func(t *testing.T) {
			p := &placing{gives: c.gives, puppet: puppet{locate: func() (wait.Publisher, error) { return wait.Publisher{}, c.subscribing }}}
			d := NewDriver(p)
			_, err := claims.Wait(t.Context(), d, driver.Request{Name: "x", TTL: time.Minute}, func(error) {})
			require.NoError(t, err)
			assert.Equal(t, c.asked, p.asked)
			require.NoError(t, d.Close(noClient))
		})
	}
}
