package wait

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/redisscript/script"
)

// unsubscribed is a Runner without subscriptions.
type unsubscribed struct{}

func (unsubscribed) Locate(context.Context, string) (Publisher, error) {
	return Publisher{}, errors.New("unreachable")
}

func (unsubscribed) Sharded() bool { return false }

// Whatever has become of a waiter: when it has left, nothing is armed, and after a while nothing is
// kept of its lock.
func TestHub_whoLeavesLeavesNothing(t *testing.T) {
	for name, ask := range map[string]func(h *Hub, w *Waiter){
		"nothing was answered": func(*Hub, *Waiter) {},
		"it failed":            func(h *Hub, w *Waiter) { h.OnFailure(w, time.Now()) },
		"it has a place":       func(h *Hub, w *Waiter) { h.OnPlace(w, script.Answer{Place: 7, Left: time.Hour}) },
		"it has a place, and failed": func(h *Hub, w *Waiter) {
			h.OnPlace(w, script.Answer{Place: 7, Left: time.Hour})
			h.OnFailure(w, time.Now())
		},
		"it has a place, and polls now": func(h *Hub, w *Waiter) {
			h.OnPlace(w, script.Answer{Place: 7, Left: time.Hour})
			h.Poll(w)
			h.Enter(w)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := NewHub(unsubscribed{}, nil)
				defer h.Close()
				woken := 0
				w := &Waiter{Keys: script.KeysOf("x"), TTL: time.Second, Wake: func() { woken++ }}
				w.Owner = h.Prefix() + "w"
				h.Enter(w)
				h.Enter(w)
				require.Len(t, h.waiters, 1)
				ask(h, w)
				h.Leave(w)
				h.Leave(w)
				time.Sleep(2 * (idleTime + heartbeat))
				assert.Zero(t, woken)
				h.mu.Lock()
				defer h.mu.Unlock()
				assert.Empty(t, h.waiters)
				assert.Empty(t, h.lists)
				assert.Nil(t, h.tick)
			})
		})
	}
}

// The first looks for all, and so learns of an outage alone. When it gives up the others look for
// themselves.
func TestHub_anOutageIsToldToAllWhenTheFirstLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(unsubscribed{}, nil)
		defer h.Close()
		var waiters [5]*Waiter
		var told []string
		for i := range waiters {
			w := &Waiter{Owner: h.Prefix() + strconv.Itoa(i), Keys: script.KeysOf("x"), TTL: time.Second}
			w.Told = func(claimed bool) { told = append(told, fmt.Sprint(i, claimed)) }
			h.Enter(w)
			h.OnPlace(w, script.Answer{Place: uint64(i + 1), Left: time.Hour})
			waiters[i] = w
		}
		synctest.Wait()
		time.Sleep(time.Millisecond)
		for range 4 {
			h.OnFailure(waiters[0], time.Now())
			time.Sleep(time.Second / 5)
		}
		synctest.Wait()
		require.Equal(t, []string{"0 false"}, slices.Compact(told))
		told = nil
		h.Leave(waiters[0])
		assert.Equal(t, []string{"1 false", "2 false", "3 false", "4 false"}, told)
	})
}

// flaky is a Runner whose connections break, most before a subscription is confirmed.
type flaky struct {
	unsubscribed
	confirms bool
	channels []string
}

func (f *flaky) Locate(context.Context, string) (Publisher, error) {
	return Publisher{Dial: func(context.Context) (Subscription, error) { return f, nil }}, nil
}

func (f *flaky) Subscribe(_ context.Context, channels ...string) error {
	f.channels = channels
	return nil
}

func (f *flaky) Receive(time.Duration) (Event, error) {
	if !f.confirms {
		return Event{}, io.EOF
	}
	f.confirms = false
	return Event{Kind: Subscribed, Channel: f.channels[0]}, nil
}

func (*flaky) Unsubscribe(context.Context, ...string) error { return nil }
func (*flaky) Ping(context.Context) error                   { return nil }
func (*flaky) Close() error                                 { return nil }

// Subscriptions that fail five times in a row are as good as refused, for a minute, and then again.
func TestHub_failuresInARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{}
		h := NewHub(f, nil)
		defer h.Close()
		w := &Waiter{Owner: h.Prefix() + "w", Keys: script.KeysOf("x"), TTL: time.Second}
		var told atomic.Int32
		w.Told = func(bool) { told.Add(1) }
		h.Enter(w)
		for i, confirmed := range []bool{4: true, 9: false, 14: false} {
			f.confirms = confirmed
			h.OnPlace(w, script.Answer{Place: 7, Left: time.Hour})
			synctest.Wait()
			refused := i == 9 || i == 14
			require.Equal(t, refused, h.Refused(), "after %d", i+1)
			if refused {
				told.Store(0)
				h.OnPlace(w, script.Answer{Place: 7, Left: time.Hour})
				require.EqualValues(t, 1, told.Load(), "it is to ask as one that polls")
				time.Sleep(refusal)
			}
		}
	})
}

// Waiters stand in the order of their places, whichever is known first; one that knows none is last.
func TestList_order(t *testing.T) {
	l := &list{}
	a, b, c := &Waiter{Owner: "a"}, &Waiter{Owner: "b"}, &Waiter{Owner: "c", Place: 2}
	l.insert(a, 9)
	l.insert(b, 0)
	l.insert(c, 0)
	assert.Equal(t, []*Waiter{c, a, b}, l.queue)
	l.insert(b, 5)
	l.insert(a, 1)
	assert.Equal(t, []*Waiter{c, b, a}, l.queue, "a place that is known stays")
	l.remove(c)
	assert.Equal(t, []*Waiter{b, a}, l.queue)

	l, a, b = &list{}, &Waiter{Owner: "a"}, &Waiter{Owner: "b"}
	l.insert(a, 0)
	l.insert(b, 0)
	l.insert(a, 0)
	assert.Equal(t, []*Waiter{b, a}, l.queue, "while the slot moves: who is first goes on looking for all")
}
