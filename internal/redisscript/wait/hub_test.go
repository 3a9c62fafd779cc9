package wait

import (
	"context"
	"errors"
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
				require.Equal(t, 1, h.Len())
				ask(h, w)
				h.Leave(w)
				h.Leave(w)
				assert.Zero(t, h.Len())
				time.Sleep(2 * (idleTime + heartbeat))
				assert.Zero(t, woken)
				h.mu.Lock()
				defer h.mu.Unlock()
				assert.Empty(t, h.lists)
				assert.Nil(t, h.tick)
			})
		})
	}
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
