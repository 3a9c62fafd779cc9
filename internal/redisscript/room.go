package redisscript

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"time"
)

// room is where the waiters of one lock are. The hub's mutex guards it.
type room struct {
	keys    [2]any
	channel string
	present int       // how many waiters are here
	line    []*waiter // those that were told to wait, in the order of their places
	idle    time.Time // since when nobody is there
	news    time.Time // when the server last answered or told anybody here
	failing time.Time // the first request after that which has failed

	ear       *ear // nil: none yet, or no more
	attaching bool
	listening bool // the server has confirmed the subscription

	timer *time.Timer // wakes the first in the line, if it is armed
	armed bool
}

func (r *room) admit(w *waiter) {
	w.room = r
	r.present++
}

// lineUp gives w its place among those of the room, once: a server that does not know it, because the slot moves, says 0. Who has
// none yet stands behind the others.
func (r *room) lineUp(w *waiter, place uint64) {
	if w.lined && (w.place > 0 || place == 0) {
		return
	}
	if i := slices.Index(r.line, w); i >= 0 {
		r.line = slices.Delete(r.line, i, i+1)
	}
	w.place, w.lined = cmp.Or(w.place, place), true
	i, _ := slices.BinarySearchFunc(r.line, w, func(w, other *waiter) int { return cmp.Compare(w.place-1, other.place-1) })
	r.line = slices.Insert(r.line, i, w)
}

func (r *room) arm(d time.Duration) {
	r.timer.Reset(d)
	r.armed = true
}

// pace is how soon the first of the room looks again if nothing happens. A look bounds what a lost message
// costs; without a subscription it is all there is. It comes sooner than a claim lapses.
func (r *room) pace() time.Duration {
	if r.listening {
		return time.Second + rand.N(500*time.Millisecond)
	}
	return 100*time.Millisecond + rand.N(100*time.Millisecond)
}

// detach leaves r without an ear, so that its first waiter looks the more often.
func (r *room) detach() {
	delete(r.ear.rooms, r.channel)
	r.ear, r.listening = nil, false
	if len(r.line) > 0 {
		r.arm(r.pace())
	}
}

// waiter is one that waits in a room, or has not been told yet that it has to.
type waiter struct {
	lease *lease
	ttl   time.Duration
	room  *room
	place uint64        // 0: not known yet
	lined bool          // it is in the room's line
	early bool          // it was woken before it waited
	woken chan struct{} // nil: it has not waited yet
}

// wake ends the next wait, or the one under way. The caller holds the hub's mutex.
func (w *waiter) wake() {
	if w.woken == nil {
		w.early = true
		return
	}
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// listen comes before the first wait. The caller holds the hub's mutex.
func (w *waiter) listen() {
	if w.woken != nil {
		return
	}
	w.woken = make(chan struct{}, 1)
	if w.early {
		w.wake()
	}
}

func (w *waiter) wait(ctx context.Context) {
	select {
	case <-w.woken:
	case <-ctx.Done():
	}
}
