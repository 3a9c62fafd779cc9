package wait

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/redisscript/script"
)

// Waiter is a claim as the hub knows it: an owner that stands in the queue of a lock, or may stand
// there, and is to be woken.
type Waiter struct {
	// Set before Enter, and not changed while the hub knows it:
	Owner string             // begins with what Hub.Prefix returned
	Keys  [3]any             // of the lock
	TTL   time.Duration      // how long the lock is asked for
	Wake  func()             // has it ask
	Told  func(claimed bool) // the same at a node of Redlock: whether the lock is claimed for it

	// Place is that in the queue; 0: not known yet. Who asks for the lock may set it before Enter, and
	// reads it; the hub sets it in OnPlace, which is called by who asks, with its mutex held: other
	// waiters compare it.
	Place uint64

	entered bool // the hub knows it; of who asks

	// The hub's mu guards:
	list   *list
	queued bool // it is in the list's queue
}

// Waits reports whether it is to be woken at all.
func (w *Waiter) Waits() bool { return w.Wake != nil || w.Told != nil }

// Polls reports whether its owner says that nobody can tell it anything.
func (w *Waiter) Polls() bool { return w.Owner[0] == script.Polls }

// wakeUp has a waiter ask. claimed: the lock is kept for it. The caller holds the hub's mutex.
func (w *Waiter) wakeUp(claimed bool) {
	if w.Told != nil {
		w.Told(claimed)
		return
	}
	w.Wake()
}

// list has the waiters of one lock, and those of its holders who ask whether somebody waits. The
// hub's mutex guards it.
type list struct {
	keys    [3]any
	channel string
	present int       // how many waiters and holders there are
	queue   []*Waiter // the waiters that the server has enqueued, in the order of their places
	idle    time.Time // since when there is none
	news    time.Time // when the server last answered or notified any of them
	failing time.Time // the first request after that which has failed

	holders map[*func()]bool // by what wakes them

	sub         *subscriber // nil: none yet, or no more
	subscribing bool
	subscribed  bool // the server has confirmed the subscription

	timer *time.Timer // wakes the first of the queue, if it is armed
	armed bool
}

// subscriber is a connection for the subscriptions of the lists of one server. The hub's mutex
// guards it.
type subscriber struct {
	conn      Subscription // nil: not yet
	since     time.Time
	confirmed bool // a subscription has been
}

// add counts w among the waiters.
func (l *list) add(w *Waiter) {
	w.list = l
	l.present++
}

// leave undoes add, or that of a holder.
func (l *list) leave() {
	if l.present--; l.present == 0 {
		l.idle = clock.Now()
		l.timer.Stop()
		l.armed = false
	}
}

// insert gives w its place in the queue, once: a server that does not know it, because the slot
// moves, says 0. A waiter that has none yet comes after the others.
func (l *list) insert(w *Waiter, place uint64) {
	if w.queued && (w.Place > 0 || place == 0) {
		return
	}
	l.remove(w)
	w.Place, w.queued = cmp.Or(w.Place, place), true
	i, _ := slices.BinarySearchFunc(l.queue, w, func(w, other *Waiter) int { return cmp.Compare(w.Place-1, other.Place-1) })
	l.queue = slices.Insert(l.queue, i, w)
}

// remove takes w off the queue, if it is there.
func (l *list) remove(w *Waiter) {
	if i := slices.Index(l.queue, w); i >= 0 {
		l.queue = slices.Delete(l.queue, i, i+1)
	}
}

func (l *list) wakeFirst() {
	if len(l.queue) > 0 {
		l.queue[0].wakeUp(false)
	}
}

// wakeHolders has those look for waiters who hold the lock, and have asked.
func (l *list) wakeHolders() {
	for wake := range l.holders {
		(*wake)()
	}
}

// tellOfSilence has those look for themselves who wait for a server that is silent, when one of
// them leaves: it may have given up.
func (l *list) tellOfSilence() {
	if !l.failing.After(l.news) {
		return
	}
	silence := clock.Since(l.failing)
	for _, w := range l.queue {
		if silence > w.TTL/2 {
			w.wakeUp(false)
		}
	}
}

func (l *list) arm(d time.Duration) {
	l.timer.Reset(d)
	l.armed = true
}

// interval returns how soon the first waiter looks again if nothing happens. A look bounds what a
// lost message costs; without a subscription it is all there is. It comes sooner than a claim
// expires.
func (l *list) interval() time.Duration {
	if l.subscribed {
		return time.Second + rand.N(500*time.Millisecond)
	}
	return soon()
}

// soon returns the poll interval without a subscription.
func soon() time.Duration { return 100*time.Millisecond + rand.N(100*time.Millisecond) }

// unsubscribed leaves l without a subscriber, so that its first waiter looks more often.
func (l *list) unsubscribed() {
	l.sub, l.subscribed = nil, false
	l.wakeHolders()
	if len(l.queue) > 0 {
		l.arm(l.interval())
	}
}
