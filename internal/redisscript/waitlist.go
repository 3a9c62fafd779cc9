package redisscript

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-locker/locker/internal/clock"
)

// waitList has the waiters of one lock. The hub's mutex guards it.
type waitList struct {
	keys    [3]any
	channel string
	present int       // how many waiters and holders there are
	queue   []*claim  // those that were told to wait, in the order of their places
	idle    time.Time // since when there is none
	news    time.Time // when the server last answered or told any of them
	failing time.Time // the first request after that which has failed

	holders map[*holder]bool // who ask whether somebody waits

	sub         *subscriber // nil: none yet, or no more
	subscribing bool
	subscribed  bool // the server has confirmed the subscription

	timer *time.Timer // wakes the first of the queue, if it is armed
	armed bool
}

// add counts w among the waiters.
func (list *waitList) add(w *claim) {
	w.list = list
	list.present++
}

// leave undoes add, or that of a holder.
func (list *waitList) leave() {
	if list.present--; list.present == 0 {
		list.idle = clock.Now()
		list.timer.Stop()
		list.armed = false
	}
}

// insert gives w its place in the queue, once: a server that does not know it, because the slot
// moves, says 0. A waiter that has none yet comes after the others.
func (list *waitList) insert(w *claim, place uint64) {
	if w.queued && (w.place > 0 || place == 0) {
		return
	}
	list.remove(w)
	w.place, w.queued = cmp.Or(w.place, place), true
	i, _ := slices.BinarySearchFunc(list.queue, w, func(w, other *claim) int { return cmp.Compare(w.place-1, other.place-1) })
	list.queue = slices.Insert(list.queue, i, w)
}

// remove takes w off the queue, if it is there.
func (list *waitList) remove(w *claim) {
	if i := slices.Index(list.queue, w); i >= 0 {
		list.queue = slices.Delete(list.queue, i, i+1)
	}
}

func (list *waitList) wakeFirst() {
	if len(list.queue) > 0 {
		list.queue[0].wakeUp(false)
	}
}

// tellOfSilence has those look for themselves who wait for a server that is silent, when one of
// them leaves: it may have given up.
func (list *waitList) tellOfSilence() {
	if !list.failing.After(list.news) {
		return
	}
	silence := clock.Since(list.failing)
	for _, w := range list.queue {
		if silence > w.ttl/2 {
			w.wakeUp(false)
		}
	}
}

func (list *waitList) arm(d time.Duration) {
	list.timer.Reset(d)
	list.armed = true
}

// interval returns how soon the first waiter looks again if nothing happens. A look bounds what a
// lost message costs; without a subscription it is all there is. It comes sooner than a claim
// expires.
func (list *waitList) interval() time.Duration {
	if list.subscribed {
		return time.Second + rand.N(500*time.Millisecond)
	}
	return soon()
}

// soon returns how soon to look again where nobody is told.
func soon() time.Duration { return 100*time.Millisecond + rand.N(100*time.Millisecond) }

// unsubscribed leaves list without a subscriber, so that its first waiter looks more often.
func (list *waitList) unsubscribed() {
	list.sub, list.subscribed = nil, false
	list.wakeHolders()
	if len(list.queue) > 0 {
		list.arm(list.interval())
	}
}

// wakeUp has a waiter ask. claimed: the lock is kept for it. The caller holds the hub's mutex.
func (c *claim) wakeUp(claimed bool) {
	if c.told != nil {
		c.told(claimed)
		return
	}
	c.wake()
}
