package redisscript

import (
	"context"
	"crypto/rand"
	"errors"
	"maps"
	mrand "math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker/internal/clock"
)

// hub wakes a Driver's waiters. Those of one lock share a room: a channel on which they are told, and a
// timer by which the first of them looks for all. The rooms of one server share an ear, a connection.
type hub struct {
	runner   Runner
	decline  func(ctx context.Context, keys []any, owner string)
	process  string          // names this hub in owners and channels
	prefixes map[byte]string // of owners, by their kind

	ctx    context.Context
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	waiters map[string]*waiter // by owner: all that have entered
	rooms   map[string]*room   // by channel
	ears    map[string]*ear    // by the station's name
	mute    int                // ears in a row that have heard nothing
	tick    *time.Timer        // of housekeeping; nil when there is nothing to keep
	deafTo  time.Time          // no subscription is tried before
	closed  bool
}

// ear is a connection that listens for the rooms of one server.
type ear struct {
	sub   Subscription // nil: not yet
	since time.Time
	hears bool             // a subscription has been confirmed
	rooms map[string]*room // by channel
}

const (
	deafness  = time.Minute      // how long after a refusal to try again
	muteness  = 5                // ears in a row that hear nothing are as good as a refusal
	lingering = 10 * time.Second // how long an empty room keeps its subscription
	heartbeat = 5 * time.Second
	dead      = 3 * heartbeat // silence of a connection
	patience  = 5 * time.Second
	unproven  = time.Second // a younger connection is not replaced at once
)

func newHub(r Runner, decline func(ctx context.Context, keys []any, owner string)) *hub {
	h := &hub{
		runner: r, decline: decline, process: rand.Text()[:13],
		prefixes: map[byte]string{}, waiters: map[string]*waiter{}, rooms: map[string]*room{}, ears: map[string]*ear{},
	}
	for _, kind := range []byte{listens, listensSharded, looks} {
		h.prefixes[kind] = string(kind) + h.process + "/"
	}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

func (h *hub) deaf() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.isDeaf()
}

func (h *hub) isDeaf() bool { return clock.Now().Before(h.deafTo) }

// enter makes a waiter of l, and puts it into the room if there is one: else nobody listens yet.
func (h *hub) enter(l *lease, ttl time.Duration) *waiter {
	w := &l.waiter
	w.lease, w.ttl = l, ttl
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiters[l.owner] = w
	if r := h.rooms[h.channel(l)]; r != nil {
		r.admit(w)
	}
	return w
}

func (h *hub) channel(l *lease) string { return l.keys[0].(string) + ":" + h.process }

// leave takes w out of its room.
func (h *hub) leave(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiters, w.lease.owner)
	w.woken = nil // what is held has no use for it
	r := w.room
	if r == nil {
		return
	}
	r.present--
	if i := slices.Index(r.line, w); i >= 0 {
		r.line = slices.Delete(r.line, i, i+1)
	}
	w.room = nil
	switch {
	case r.present == 0:
		r.idle = clock.Now()
		r.timer.Stop()
		r.armed = false
	case !r.armed: // w has been woken to look
		r.arm(time.Millisecond)
	}
}

// placed takes in that the server has given w a place, or that it still has it.
func (h *hub) placed(w *waiter, a answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w.listen()
	if h.closed {
		return
	}
	if w.room == nil {
		h.roomOf(w.lease).admit(w)
	}
	r := w.room
	r.news = clock.Now()
	r.lineUp(w, a.place)
	first := r.line[0] == w
	if first && a.back {
		// Who is behind it in the queue was behind it when it lost its place.
		for _, other := range r.line[1:] {
			other.wake()
		}
		if r.ear != nil && r.ear.sub != nil && clock.Since(r.ear.since) > unproven {
			r.ear.drop(h)
		}
	}
	if first || !r.armed {
		r.arm(min(a.left+time.Millisecond+mrand.N(20*time.Millisecond), r.pace()))
	}
	h.attach(r)
}

// silence is for how long what w's room has asked for has failed: sent is the latest, which has.
func (h *hub) silence(w *waiter, sent time.Time) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.room == nil {
		return clock.Since(time.Time{})
	}
	if r := w.room; !r.failing.After(r.news) {
		r.failing = sent
	}
	return clock.Since(w.room.failing)
}

// alarm has those look for themselves who wait with w, which has given up on a server that is silent.
func (h *hub) alarm(w *waiter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w.room == nil {
		return
	}
	silence := clock.Since(w.room.failing)
	for _, other := range w.room.line {
		if silence > other.ttl/2 {
			other.wake()
		}
	}
}

// roomOf returns the room of l's lock.
func (h *hub) roomOf(l *lease) *room {
	channel := h.channel(l)
	r := h.rooms[channel]
	if r == nil {
		r = &room{keys: l.keys, channel: channel}
		r.timer = time.AfterFunc(time.Hour, func() { h.look(r) })
		r.timer.Stop()
		h.rooms[channel] = r
		if h.tick == nil {
			h.tick = time.AfterFunc(heartbeat, h.keepHouse)
		}
	}
	return r
}

// look wakes the first waiter of r, for it is time.
func (h *hub) look(r *room) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.armed = false
	if len(r.line) > 0 {
		r.line[0].wake()
	}
}

// attach has r listened to, if it is not.
func (h *hub) attach(r *room) {
	if r.ear != nil || r.attaching || h.closed || h.isDeaf() {
		return
	}
	r.attaching = true
	h.done.Go(func() {
		ctx, cancel := context.WithTimeout(h.ctx, patience)
		defer cancel()
		station, err := h.runner.Locate(ctx, r.keys[0].(string))
		sub := h.assign(r, station, err)
		if sub != nil && sub.Subscribe(ctx, r.channel) != nil {
			_ = sub.Close()
		}
	})
}

// assign gives r to the ear of its station, and returns the ear's connection if it stands already.
func (h *hub) assign(r *room, station Station, err error) Subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.attaching = false
	if err != nil {
		h.failed(err)
		return nil
	}
	if h.closed || h.rooms[r.channel] != r {
		return nil
	}
	e := h.ears[station.Name]
	if e == nil {
		e = &ear{rooms: map[string]*room{}}
		h.ears[station.Name] = e
		h.done.Go(func() { h.detach(e, station.Name, h.listen(e, station)) })
	}
	e.rooms[r.channel] = r
	r.ear = e
	return e.sub
}

// failed takes in why there is no subscription.
func (h *hub) failed(err error) {
	if errors.Is(err, ErrDeaf) {
		h.deafTo = clock.Now().Add(deafness)
	}
}

// listen connects e, and hears until that ends.
func (h *hub) listen(e *ear, station Station) error {
	ctx, cancel := context.WithTimeout(h.ctx, patience)
	defer cancel()
	sub, err := station.Dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = sub.Close() }()
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return nil
	}
	e.sub, e.since = sub, clock.Now()
	channels := slices.Collect(maps.Keys(e.rooms))
	h.mu.Unlock()
	if err := sub.Subscribe(ctx, channels...); err != nil {
		return err
	}
	for {
		event, err := sub.Receive(dead)
		if err != nil {
			return err
		}
		h.heard(e, event)
	}
}

func (h *hub) heard(e *ear, event Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.rooms[event.Channel]
	if r == nil {
		return
	}
	switch event.Kind {
	case Message:
		r.news = clock.Now()
		if w := h.waiters[event.Message]; w != nil {
			w.wake()
			return
		}
		h.spawn(func(ctx context.Context) { h.decline(ctx, r.keys[:], event.Message) })
	case Subscribed:
		// What was published before has been missed.
		r.listening = r.ear == e
		h.mute, e.hears = 0, true
		if len(r.line) > 0 {
			r.line[0].wake()
		}
	case Unsubscribed:
		if r.ear == e {
			r.detach()
			h.attach(r)
		}
	case Other:
	}
}

// detach takes the rooms from e, which hears nothing any more.
func (h *hub) detach(e *ear, station string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed(err)
	if h.ears[station] == e {
		delete(h.ears, station)
	}
	if !e.hears {
		if h.mute++; h.mute == muteness {
			h.mute = 0
			h.failed(ErrDeaf)
		}
	}
	proven := e.sub != nil && clock.Since(e.since) > unproven
	for _, r := range e.rooms {
		if r.ear != e {
			continue
		}
		r.detach()
		if proven {
			h.attach(r)
		}
	}
}

// drop ends e, whose server may not be the one that publishes any more.
func (e *ear) drop(h *hub) {
	sub := e.sub
	h.spawn(func(context.Context) { _ = sub.Close() })
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

// keepHouse closes rooms that nobody has used for a while, and ears without rooms, and asks the others
// for a sign of life.
func (h *hub) keepHouse() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	for _, r := range h.rooms {
		if r.present > 0 || clock.Since(r.idle) < lingering || r.attaching {
			continue
		}
		delete(h.rooms, r.channel)
		if e := r.ear; e != nil {
			delete(e.rooms, r.channel)
			h.tell(e, func(ctx context.Context, s Subscription) error { return s.Unsubscribe(ctx, r.channel) })
		}
	}
	for _, e := range h.ears {
		if len(e.rooms) == 0 && e.sub != nil {
			e.drop(h)
			continue
		}
		h.tell(e, func(ctx context.Context, s Subscription) error { return s.Ping(ctx) })
	}
	h.tick = nil
	if len(h.rooms) > 0 || len(h.ears) > 0 {
		h.tick = time.AfterFunc(heartbeat, h.keepHouse)
	}
}

// tell sends something on e's connection, which ends if that fails.
func (h *hub) tell(e *ear, send func(context.Context, Subscription) error) {
	if e.sub == nil {
		return
	}
	sub := e.sub
	h.spawn(func(ctx context.Context) {
		if send(ctx, sub) != nil {
			_ = sub.Close()
		}
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
	for _, r := range h.rooms {
		r.timer.Stop()
	}
	for _, e := range h.ears {
		if e.sub != nil {
			_ = e.sub.Close()
		}
	}
	h.mu.Unlock()
	h.done.Wait()
}
