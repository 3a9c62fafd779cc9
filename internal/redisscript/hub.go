package redisscript

import (
	"context"
	"crypto/rand"
	"errors"
	mrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/internal/clock"
)

// hub wakes a Driver's waiters. Those of one lock share a wait list: a channel on which they are
// told, and a timer by which the first of them looks for all. The wait lists of one server share a
// subscriber.
type hub struct {
	runner   Runner
	decline  func(ctx context.Context, keys []any, owner string)
	process  string          // names this hub in owners and channels
	prefixes map[byte]string // of owners, by their kind

	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	refusedUntil atomic.Int64 // no subscription is tried before, in nanoseconds since epoch; 0: never refused

	mu          sync.Mutex
	waiters     map[string]*claim      // by owner: all that have entered
	lists       map[string]*waitList   // by channel
	subscribers map[string]*subscriber // by the publisher's name
	failures    int                    // subscribers in a row of which no subscription was confirmed
	tick        *time.Timer            // of tidy; nil when there is nothing to tidy
	closed      bool
}

const (
	refusal     = time.Minute      // how long after a refusal to try again
	maxFailures = 5                // in a row are as good as a refusal
	idleTime    = 10 * time.Second // how long an empty wait list keeps its subscription
	heartbeat   = 5 * time.Second
	dead        = 3 * heartbeat // silence of a connection
	patience    = 5 * time.Second
	minAge      = time.Second // a younger connection is not replaced at once
)

func newHub(r Runner, decline func(ctx context.Context, keys []any, owner string)) *hub {
	h := &hub{
		runner: r, decline: decline, process: rand.Text()[:13],
		prefixes: map[byte]string{}, waiters: map[string]*claim{}, lists: map[string]*waitList{}, subscribers: map[string]*subscriber{},
	}
	for _, kind := range []byte{subscribes, subscribesSharded, polls} {
		h.prefixes[kind] = string(kind) + h.process + "/"
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// What the owner of a waiter begins with; see lua/lib/layout.lua.
const (
	subscribes        = 'p'
	subscribesSharded = 's'
	polls             = '-'
)

// kind returns what the owner of a waiter begins with.
func (h *hub) kind() byte {
	switch {
	case h.refused():
		return polls
	case h.runner.Sharded():
		return subscribesSharded
	default:
		return subscribes
	}
}

// refused reports whether there are no subscriptions for now.
func (h *hub) refused() bool {
	until := h.refusedUntil.Load()
	return until != 0 && clock.Since(epoch) < time.Duration(until)
}

// failed takes in why there is no subscription. If there will be none, those who wait for a message
// ask again, and poll. The caller holds h.mu.
func (h *hub) failed(err error) {
	if !errors.Is(err, ErrNoSubscriptions) {
		return
	}
	h.refusedUntil.Store(int64(clock.Since(epoch) + refusal))
	for _, list := range h.lists {
		for _, w := range list.queue {
			if w.owner[0] != polls {
				w.wakeUp(false)
			}
		}
	}
}

// enter has w be told, and adds it to the wait list if there is one: else nobody is subscribed yet.
func (h *hub) enter(w *claim) {
	if w.entered {
		return
	}
	w.entered = true
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiters[w.owner] = w
	if list := h.lists[h.channel(w)]; list != nil {
		list.add(w)
	}
}

func (h *hub) channel(c *claim) string { return c.keys[0].(string) + ":" + h.process }

// leave has w not be told any more, and takes it off its wait list.
func (h *hub) leave(w *claim) {
	if !w.entered {
		return
	}
	w.entered = false
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiters, w.owner)
	list := w.list
	if list == nil {
		return
	}
	list.remove(w)
	w.list = nil
	list.tellOfSilence()
	list.leave()
	if list.present > 0 && !list.armed { // w has been woken to look
		list.arm(time.Millisecond)
	}
}

// onPlace takes in that the server has given w a place, or that it still has it.
func (h *hub) onPlace(w *claim, a answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	if w.list == nil {
		h.listOf(w).add(w)
	}
	list := w.list
	list.news = clock.Now()
	back := a.back && w.queued
	list.insert(w, a.place)
	first := list.queue[0] == w
	if first && back {
		// Who is behind it in the queue was behind it when it lost its place.
		for _, other := range list.queue[1:] {
			other.wakeUp(false)
		}
		if list.sub != nil && list.sub.connected() && clock.Since(list.sub.since) > minAge {
			h.disconnect(list.sub)
		}
	}
	if first || !list.armed {
		next := list.interval()
		if a.place == 0 { // it has no place at the server, because the slot moves
			next = soon()
		}
		list.arm(min(a.left+time.Millisecond+mrand.N(20*time.Millisecond), next))
	}
	h.subscribe(list)
	if w.told != nil && w.owner[0] != polls && h.refused() { // that became known meanwhile
		w.wakeUp(false)
	}
}

// onFailure has the wait list of w look again, whose request has failed, which was sent at sent.
func (h *hub) onFailure(w *claim, sent time.Time) {
	h.silence(w, sent)
	h.mu.Lock()
	defer h.mu.Unlock()
	if list := w.list; list != nil && !list.armed && !h.closed {
		list.arm(list.interval())
	}
}

// silence returns for how long what w's wait list has asked for has failed: sent is the latest,
// which has.
func (h *hub) silence(w *claim, sent time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := w.list
	if list == nil {
		return clock.Since(time.Time{})
	}
	if !list.failing.After(list.news) {
		list.failing = sent
	}
	return clock.Since(list.failing)
}

// listOf returns the wait list of c's lock.
func (h *hub) listOf(c *claim) *waitList {
	channel := h.channel(c)
	list := h.lists[channel]
	if list == nil {
		list = &waitList{keys: c.keys, channel: channel}
		list.timer = time.AfterFunc(time.Hour, func() { h.look(list) })
		list.timer.Stop()
		h.lists[channel] = list
		if h.tick == nil {
			h.tick = time.AfterFunc(heartbeat, h.tidy)
		}
	}
	return list
}

// listsOf returns the wait lists of s.
func (h *hub) listsOf(s *subscriber) (lists []*waitList) {
	for _, list := range h.lists {
		if list.sub == s {
			lists = append(lists, list)
		}
	}
	return lists
}

// look wakes the first waiter of list, because it is time.
func (h *hub) look(list *waitList) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list.armed = false
	list.wakeFirst()
}

func (h *hub) spawn(f func(ctx context.Context)) {
	if h.closed {
		return
	}
	h.done.Go(func() {
		ctx, cancel := context.WithTimeout(h.ctx, patience)
		defer cancel()
		f(ctx)
	})
}

// close ends everything, and returns when no goroutine is left.
func (h *hub) close() {
	h.mu.Lock()
	h.closed = true
	h.cancel()
	if h.tick != nil {
		h.tick.Stop()
	}
	for _, list := range h.lists {
		list.timer.Stop()
	}
	for _, s := range h.subscribers {
		if s.connected() {
			_ = s.conn.Close()
		}
	}
	h.mu.Unlock()
	h.done.Wait()
}
