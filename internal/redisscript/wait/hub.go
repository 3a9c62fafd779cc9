// Package wait wakes those who wait for a lock: it subscribes to what servers publish, and looks now
// and then for what was not heard.
package wait

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	mrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/redisscript/script"
)

// How waiters are woken.
//
// Those of one lock in this process share a list: a channel on which the server tells them, and a
// timer by which the first of them looks for all. The lists of one server share a subscriber, a
// connection for subscriptions alone.
//
//  1. Enter, before a waiter asks: from then on what is published for its owner finds it.
//  2. The server gives it a place (OnPlace), and its list subscribes. When that is confirmed the
//     first looks once more: what was published before was missed.
//  3. A message names an owner for whom the lock is claimed, which asks; if it has left, the claim is
//     declined. Or it names this process: the holders that have asked are woken, as somebody waits.
//  4. The first of a list looks every 1 to 1.5 s, and when the lock would expire; without a
//     subscription every 0.1 to 0.2 s.
//  5. Leave, when it is granted or gives up. What nobody uses for a while is given up, too: the list,
//     its subscription, the connection, and the timer.
//
// Invariants. (1) An owner says that its process is subscribed only while that is, or tries to be:
// the queue passes over others. Where subscriptions are refused, or fail maxFailures times in a row,
// all are woken, and ask again as owners that poll. (2) While somebody is in a list's queue its timer
// is armed, or the first is awake and asks: a lost message costs one look. (3) A waiter that had lost
// its place, because it was not reached, wakes those behind it, and its subscriber is replaced: the
// server may not be the one that publishes any more. (4) After a lost reply (OnFailure) a waiter may
// have a place, or the lock: it stays, and looks again.

// Hub wakes the waiters of a Driver.
type Hub struct {
	// Set once:
	runner     Runner
	decline    func(ctx context.Context, keys []any, owner string)
	process    string // names this hub in owners and channels
	subscribes string // prefix of owners; a message that is no more than this is for holders
	polls      string // the prefix where there are no subscriptions
	ctx        context.Context
	cancel     context.CancelFunc

	done         sync.WaitGroup
	refusedUntil atomic.Int64 // no subscription is tried before, in nanoseconds since epoch; 0: never refused

	// mu guards, beside what lists, subscribers and Waiters say:
	mu          sync.Mutex
	waiters     map[string]*Waiter     // by owner: all that have entered
	lists       map[string]*list       // by channel
	subscribers map[string]*subscriber // by the publisher's name
	failures    int                    // subscribers in a row of which no subscription was confirmed
	tick        *time.Timer            // of tidy; nil when there is nothing to tidy
	closed      bool
}

const (
	refusal     = time.Minute      // how long after a refusal to try again
	maxFailures = 5                // in a row are as good as a refusal
	idleTime    = 10 * time.Second // how long an empty list keeps its subscription
	heartbeat   = 5 * time.Second
	dead        = 3 * heartbeat // silence of a connection
	patience    = 5 * time.Second
	minAge      = time.Second // a younger connection is not replaced at once
)

// epoch is what times are counted from.
var epoch = clock.Now()

// NewHub returns a Hub that subscribes through r. decline hands over what is claimed for an owner
// that has left.
func NewHub(r Runner, decline func(ctx context.Context, keys []any, owner string)) *Hub {
	process, subscribes := rand.Text()[:13], script.Subscribes
	if r.Sharded() {
		subscribes = script.SubscribesSharded
	}
	h := &Hub{
		runner: r, decline: decline, process: process,
		subscribes: string(subscribes) + process + "/", polls: string(script.Polls) + process + "/",
		waiters: map[string]*Waiter{}, lists: map[string]*list{}, subscribers: map[string]*subscriber{},
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// Prefix returns the prefix of a new waiter's owner ID: how to notify it, and its process; see
// lua/lib/layout.lua.
func (h *Hub) Prefix() string {
	if h.Refused() {
		return h.polls
	}
	return h.subscribes
}

// Refused reports whether there are no subscriptions for now.
func (h *Hub) Refused() bool {
	until := h.refusedUntil.Load()
	return until != 0 && clock.Since(epoch) < time.Duration(until)
}

// Enter begins to deliver messages to w, and adds it to the list of its lock if there is one: else
// nobody is subscribed yet.
func (h *Hub) Enter(w *Waiter) {
	if w.entered {
		return
	}
	w.entered = true
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiters[w.Owner] = w
	if l := h.lists[h.channel(w.Keys)]; l != nil {
		l.add(w)
	}
}

// Leave ends the delivery of messages to w, and takes it off its list.
func (h *Hub) Leave(w *Waiter) {
	if !w.entered {
		return
	}
	w.entered = false
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiters, w.Owner)
	l := w.list
	if l == nil {
		return
	}
	l.remove(w)
	w.list, w.queued = nil, false
	l.tellOfSilence()
	l.leave()
	if l.present > 0 && !l.armed { // w has been woken to look
		l.arm(time.Millisecond)
	}
}

// OnPlace takes in that the server has given w a place, or that it still has it.
func (h *Hub) OnPlace(w *Waiter, a script.Answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	if w.list == nil {
		h.listOf(w.Keys).add(w)
	}
	l := w.list
	l.news = clock.Now()
	back := a.Back && w.queued
	l.insert(w, a.Place)
	first := l.queue[0] == w
	if first && back {
		// Who is behind it in the queue was behind it when it lost its place.
		for _, other := range l.queue[1:] {
			other.wakeUp(false)
		}
		if l.sub != nil && clock.Since(l.sub.since) > minAge {
			h.send(l.sub, disconnect)
		}
	}
	if first || !l.armed {
		next := l.interval()
		if a.Place == 0 { // it has no place at the server, because the slot moves
			next = soon()
		}
		l.arm(min(a.Left+time.Millisecond+mrand.N(20*time.Millisecond), next))
	}
	h.subscribe(l)
	if w.Told != nil && !w.Polls() && h.Refused() { // that became known meanwhile
		w.wakeUp(false)
	}
}

// OnFailure has the list of w look again: a request of w failed that was sent at sent.
func (h *Hub) OnFailure(w *Waiter, sent time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := w.list
	if l == nil {
		return
	}
	if !l.failing.After(l.news) {
		l.failing = sent
	}
	if !l.armed && !h.closed {
		l.arm(l.interval())
	}
}

// Poll is Leave, and makes w an owner that polls, in the same place.
func (h *Hub) Poll(w *Waiter) {
	h.Leave(w)
	w.Owner = h.polls + w.Owner[len(h.polls):] // all prefixes are as long
}

// Watch has a holder of the lock with these keys be woken when somebody may have begun to wait,
// until ctx ends. It reports whether the server tells: if not, the holder is woken as soon as it
// does.
func (h *Hub) Watch(ctx context.Context, keys [3]any, wake func()) (subscribed bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false
	}
	l := h.listOf(keys)
	if l.holders == nil {
		l.holders = map[*func()]bool{}
	}
	l.present++
	l.holders[&wake] = true
	context.AfterFunc(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(l.holders, &wake)
		l.leave()
	})
	h.subscribe(l)
	return l.subscribed
}

// Close ends everything, and returns when no goroutine is left.
func (h *Hub) Close() {
	h.mu.Lock()
	h.closed = true
	h.cancel()
	if h.tick != nil {
		h.tick.Stop()
	}
	for _, l := range h.lists {
		l.timer.Stop()
	}
	for _, s := range h.subscribers {
		if s.conn != nil {
			_ = s.conn.Close()
		}
	}
	h.mu.Unlock()
	h.done.Wait()
}

func (h *Hub) channel(keys [3]any) string { return keys[0].(string) + ":" + h.process }

// listOf returns the list of the lock with these keys.
func (h *Hub) listOf(keys [3]any) *list {
	channel := h.channel(keys)
	l := h.lists[channel]
	if l == nil {
		l = &list{keys: keys, channel: channel}
		l.timer = time.AfterFunc(time.Hour, func() {
			h.mu.Lock()
			defer h.mu.Unlock()
			l.armed = false
			l.wakeFirst()
		})
		l.timer.Stop()
		h.lists[channel] = l
		if h.tick == nil {
			h.tick = time.AfterFunc(heartbeat, h.tidy)
		}
	}
	return l
}

// subscribe gets l a subscriber, if it has none.
func (h *Hub) subscribe(l *list) {
	if l.sub != nil || l.subscribing || h.closed || h.Refused() {
		return
	}
	l.subscribing = true
	h.spawn(func(ctx context.Context) {
		publisher, err := h.runner.Locate(ctx, l.keys[0].(string))
		h.mu.Lock()
		defer h.mu.Unlock()
		l.subscribing = false
		if err != nil {
			h.onSubscribeError(err)
			return
		}
		if h.closed || h.lists[l.channel] != l {
			return
		}
		s := h.subscribers[publisher.Name]
		if s == nil {
			s = &subscriber{}
			h.subscribers[publisher.Name] = s
			h.done.Go(func() { h.disconnected(s, publisher.Name, h.receive(s, publisher)) })
		}
		l.sub = s
		h.send(s, func(ctx context.Context, c Subscription) error { return c.Subscribe(ctx, l.channel) })
	})
}

// receive connects s, and receives until that ends.
func (h *Hub) receive(s *subscriber, publisher Publisher) error {
	ctx, cancel := context.WithTimeout(h.ctx, patience)
	defer cancel()
	conn, err := publisher.Dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	s.conn, s.since = conn, clock.Now()
	var channels []string
	for _, l := range h.listsOf(s) {
		channels = append(channels, l.channel)
	}
	h.mu.Unlock()
	if err := conn.Subscribe(ctx, channels...); err != nil {
		return err
	}
	for {
		event, err := conn.Receive(dead)
		if err != nil {
			return err
		}
		h.received(s, event)
	}
}

func (h *Hub) received(s *subscriber, event Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.lists[event.Channel]
	if l == nil {
		return
	}
	switch event.Kind {
	case Message:
		l.news = clock.Now()
		if event.Message == h.subscribes {
			l.wakeHolders()
			return
		}
		if w := h.waiters[event.Message]; w != nil {
			w.wakeUp(true)
			return
		}
		h.spawn(func(ctx context.Context) { h.decline(ctx, l.keys[:], event.Message) })
	case Subscribed:
		// What was published before has been missed.
		l.subscribed = l.sub == s
		h.failures, s.confirmed = 0, true
		l.wakeFirst()
		l.wakeHolders()
	case Unsubscribed:
		if l.sub == s {
			l.unsubscribed()
			h.subscribe(l)
		}
	case Other:
	}
}

// disconnected takes the lists from s, which receives nothing any more.
func (h *Hub) disconnected(s *subscriber, publisher string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.onSubscribeError(err)
	if h.subscribers[publisher] == s {
		delete(h.subscribers, publisher)
	}
	if !s.confirmed {
		if h.failures++; h.failures == maxFailures {
			h.failures = 0
			h.onSubscribeError(ErrNoSubscriptions)
		}
	}
	again := s.conn != nil && clock.Since(s.since) > minAge
	for _, l := range h.listsOf(s) {
		l.unsubscribed()
		if again {
			h.subscribe(l)
		}
	}
}

// onSubscribeError takes in why there is no subscription. If there will be none, those who wait for
// a message ask again, and poll. The caller holds h.mu.
func (h *Hub) onSubscribeError(err error) {
	if !errors.Is(err, ErrNoSubscriptions) {
		return
	}
	h.refusedUntil.Store(int64(clock.Since(epoch) + refusal))
	for _, l := range h.lists {
		for _, w := range l.queue {
			if !w.Polls() {
				w.wakeUp(false)
			}
		}
	}
}

func disconnect(context.Context, Subscription) error { return io.EOF }

// send sends something on the connection of s, which ends if that fails.
func (h *Hub) send(s *subscriber, f func(context.Context, Subscription) error) {
	conn := s.conn
	if conn == nil {
		return
	}
	h.spawn(func(ctx context.Context) {
		if f(ctx, conn) != nil {
			_ = conn.Close()
		}
	})
}

// tidy removes lists that nobody has used for a while, and subscribers without any, and asks the
// others for a sign of life.
func (h *Hub) tidy() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	for _, l := range h.lists {
		if l.present > 0 || clock.Since(l.idle) < idleTime || l.subscribing {
			continue
		}
		delete(h.lists, l.channel)
		if s := l.sub; s != nil {
			h.send(s, func(ctx context.Context, c Subscription) error { return c.Unsubscribe(ctx, l.channel) })
		}
	}
	for _, s := range h.subscribers {
		what := func(ctx context.Context, c Subscription) error { return c.Ping(ctx) }
		if len(h.listsOf(s)) == 0 {
			what = disconnect
		}
		h.send(s, what)
	}
	h.tick = nil
	if len(h.lists) > 0 || len(h.subscribers) > 0 {
		h.tick = time.AfterFunc(heartbeat, h.tidy)
	}
}

// listsOf returns the lists of s.
func (h *Hub) listsOf(s *subscriber) (lists []*list) {
	for _, l := range h.lists {
		if l.sub == s {
			lists = append(lists, l)
		}
	}
	return lists
}

// spawn runs f in a goroutine that Close waits for, with a context that ends. The caller holds h.mu.
func (h *Hub) spawn(f func(ctx context.Context)) {
	if h.closed {
		return
	}
	h.done.Go(func() {
		ctx, cancel := context.WithTimeout(h.ctx, patience)
		defer cancel()
		f(ctx)
	})
}
