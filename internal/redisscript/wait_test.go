package redisscript

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/quorum"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/redisscript/wait"
)

// tidings is what a waiter of Wait is told.
type tidings struct {
	mu   sync.Mutex
	kept []bool
}

func (n *tidings) tell(kept bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.kept = append(n.kept, kept)
}

func (n *tidings) all() []bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.kept)
}

// Nothing of the hub's waits for a waiter of Wait, or asks for it.
func TestWait_aWaiterIsToldAndNotAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWire()
		var asked atomic.Int32
		owner := ""
		p := &puppet{dial: func(context.Context) (wait.Subscription, error) { return w, nil }}
		p.run = func(_ context.Context, s *script.Script, o string) (any, error) {
			if s == script.Propose {
				owner = o
				asked.Add(1)
			}
			return heldReply(7), nil
		}
		d := NewDriver(p)
		var told tidings
		l := d.Candidate(driver.Request{Name: "x", TTL: time.Minute}, 7, told.tell)
		_, err := l.Propose(t.Context(), 1)
		require.ErrorIs(t, err, driver.ErrHeld)
		synctest.Wait()
		require.Equal(t, []bool{false}, told.all(), "it looks when the subscription stands")
		w.events <- wait.Event{Kind: wait.Message, Channel: channelOf(d, "x"), Message: owner}
		synctest.Wait()
		require.Equal(t, []bool{false, true}, told.all())
		time.Sleep(2 * time.Second)
		require.Equal(t, []bool{false, true, false}, told.all(), "once, until it has asked")
		require.EqualValues(t, 1, asked.Load())
		p.run = func(context.Context, *script.Script, string) (any, error) { return int64(1), nil }
		require.NoError(t, l.Release(t.Context()))
		assert.Zero(t, d.hub.Len())
		require.NoError(t, d.Close(noClient))
	})
}

// A node that cannot be reached is asked by every attempt, and none of them stays.
func TestWait_ofWhatWasNeverSentNothingIsLeft(t *testing.T) {
	t.Parallel()
	var fails atomic.Bool
	p := &puppet{locate: func() (wait.Publisher, error) { return wait.Publisher{}, wait.ErrNoSubscriptions }}
	p.run = func(_ context.Context, s *script.Script, _ string) (any, error) {
		switch {
		case fails.Load():
			return nil, notSent{errors.New("connection refused")}
		case s == script.Release:
			return int64(1), nil
		default:
			return heldReply(7), nil
		}
	}
	d := NewDriver(p)
	other := d.Candidate(driver.Request{Name: "x", TTL: time.Minute}, 7, func(bool) {})
	_, err := other.Propose(t.Context(), 1)
	require.ErrorIs(t, err, driver.ErrHeld, "there is a wait list")
	fails.Store(true)
	l := d.Candidate(driver.Request{Name: "x", TTL: time.Minute}, 7, func(bool) {})
	for range 3 {
		_, err := l.Propose(t.Context(), 1)
		require.ErrorContains(t, err, "connection refused")
	}
	require.False(t, l.Known())
	fails.Store(false)
	require.NoError(t, other.Release(t.Context()))
	assert.Zero(t, d.hub.Len())
	require.NoError(t, d.Close(noClient))
}

// As with claims that wait: the first learns of the outage, and when it gives up the others look
// for themselves.
func TestWait_anOutageIsToldToAllWhenTheFirstGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		w := newWire()
		p := &puppet{dial: func(context.Context) (wait.Subscription, error) { return w, nil }}
		p.run = func(context.Context, *script.Script, string) (any, error) {
			if hangs.Load() {
				return nil, errors.New("no answer")
			}
			return heldReply(7), nil
		}
		d := NewDriver(p)
		told := make([]tidings, 5)
		var all []quorum.Candidate
		for i := range told {
			all = append(all, d.Candidate(forOneSecond, uint64(i+1), told[i].tell))
			_, err := all[i].Propose(t.Context(), 1)
			require.ErrorIs(t, err, driver.ErrHeld)
		}
		synctest.Wait()
		hangs.Store(true)
		time.Sleep(time.Millisecond)
		for range 3 {
			_, err := all[0].Propose(t.Context(), 1)
			require.Error(t, err)
			time.Sleep(forOneSecond.TTL / 5)
		}
		for i := range told[1:] {
			require.Empty(t, told[1+i].all())
		}
		require.Error(t, all[0].Release(t.Context()))
		for i := range told[1:] {
			assert.Equal(t, []bool{false}, told[1+i].all(), "waiter %d", 1+i)
		}
		hangs.Store(false)
		for _, l := range all[1:] {
			_ = l.Release(t.Context())
		}
		assert.Zero(t, d.hub.Len())
		require.NoError(t, d.Close(noClient))
	})
}

// It is told to look once, and asks. If that fails, it is told again, for nobody else of the wait list looks.
func TestWait_aWaiterWhoseRequestFailsIsToldToLookAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var fails atomic.Bool
		p := &puppet{locate: func() (wait.Publisher, error) { return wait.Publisher{}, wait.ErrNoSubscriptions }}
		p.run = func(_ context.Context, s *script.Script, _ string) (any, error) {
			switch {
			case fails.Load():
				return nil, errors.New("connection reset")
			case s == script.Release:
				return int64(1), nil
			}
			return heldReply(7), nil
		}
		d := NewDriver(p)
		var told tidings
		l := d.Candidate(driver.Request{Name: "x", TTL: time.Minute}, 7, told.tell)
		for range 2 {
			_, err := l.Propose(t.Context(), 1)
			require.ErrorIs(t, err, driver.ErrHeld)
			synctest.Wait()
			require.Len(t, told.all(), 1, "that there are no subscriptions: it asks again, as one that polls")
		}
		fails.Store(true)
		for range 3 {
			before := len(told.all())
			time.Sleep(2 * time.Second)
			require.Len(t, told.all(), before+1, "once, until it has asked")
			_, err := l.Propose(t.Context(), 1)
			require.ErrorContains(t, err, "connection reset")
		}
		fails.Store(false)
		_ = l.Release(t.Context())
		assert.Zero(t, d.hub.Len())
		require.NoError(t, d.Close(noClient))
	})
}
