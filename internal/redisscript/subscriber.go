package redisscript

import (
	"context"
	"time"

	"github.com/go-locker/locker/internal/clock"
)

// subscriber is a connection for the subscriptions of the wait lists of one server. The hub's mutex
// guards it.
type subscriber struct {
	conn      Subscription // nil: not yet
	since     time.Time
	confirmed bool // a subscription has been
}

func (s *subscriber) connected() bool { return s.conn != nil }

// subscribe gets list a subscriber, if it has none.
func (h *hub) subscribe(list *waitList) {
	if list.sub != nil || list.subscribing || h.closed || h.refused() {
		return
	}
	list.subscribing = true
	h.done.Go(func() {
		ctx, cancel := context.WithTimeout(h.ctx, patience)
		defer cancel()
		publisher, err := h.runner.Locate(ctx, list.keys[0].(string))
		conn := h.assign(list, publisher, err)
		if conn != nil && conn.Subscribe(ctx, list.channel) != nil {
			_ = conn.Close()
		}
	})
}

// assign gives list to the subscriber of its publisher, and returns that one's connection if it
// stands already.
func (h *hub) assign(list *waitList, publisher Publisher, err error) Subscription {
	h.mu.Lock()
	defer h.mu.Unlock()
	list.subscribing = false
	if err != nil {
		h.failed(err)
		return nil
	}
	if h.closed || h.lists[list.channel] != list {
		return nil
	}
	s := h.subscribers[publisher.Name]
	if s == nil {
		s = &subscriber{}
		h.subscribers[publisher.Name] = s
		h.done.Go(func() { h.disconnected(s, publisher.Name, h.receive(s, publisher)) })
	}
	list.sub = s
	return s.conn
}

// receive connects s, and receives until that ends.
func (h *hub) receive(s *subscriber, publisher Publisher) error {
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
	for _, list := range h.listsOf(s) {
		channels = append(channels, list.channel)
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

func (h *hub) received(s *subscriber, event Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	list := h.lists[event.Channel]
	if list == nil {
		return
	}
	switch event.Kind {
	case Message:
		list.news = clock.Now()
		if event.Message == h.prefixes[subscribes] || event.Message == h.prefixes[subscribesSharded] {
			list.wakeHolders()
			return
		}
		if w := h.waiters[event.Message]; w != nil {
			w.wakeUp(true)
			return
		}
		h.spawn(func(ctx context.Context) { h.decline(ctx, list.keys[:], event.Message) })
	case Subscribed:
		// What was published before has been missed.
		list.subscribed = list.sub == s
		h.failures, s.confirmed = 0, true
		list.wakeFirst()
		list.wakeHolders()
	case Unsubscribed:
		if list.sub == s {
			list.unsubscribed()
			h.subscribe(list)
		}
	case Other:
	}
}

// disconnected takes the wait lists from s, which receives nothing any more.
func (h *hub) disconnected(s *subscriber, publisher string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failed(err)
	if h.subscribers[publisher] == s {
		delete(h.subscribers, publisher)
	}
	if !s.confirmed {
		if h.failures++; h.failures == maxFailures {
			h.failures = 0
			h.failed(ErrNoSubscriptions)
		}
	}
	again := s.connected() && clock.Since(s.since) > minAge
	for _, list := range h.listsOf(s) {
		list.unsubscribed()
		if again {
			h.subscribe(list)
		}
	}
}

// disconnect ends s, whose server may not be the one that publishes any more.
func (h *hub) disconnect(s *subscriber) {
	conn := s.conn
	h.spawn(func(context.Context) { _ = conn.Close() })
}

// send sends something on the connection of s, which ends if that fails.
func (h *hub) send(s *subscriber, f func(context.Context, Subscription) error) {
	if !s.connected() {
		return
	}
	conn := s.conn
	h.spawn(func(ctx context.Context) {
		if f(ctx, conn) != nil {
			_ = conn.Close()
		}
	})
}

// tidy removes wait lists that nobody has used for a while, and subscribers without any, and asks
// the others for a sign of life.
func (h *hub) tidy() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return
	}
	for _, list := range h.lists {
		if list.present > 0 || clock.Since(list.idle) < idleTime || list.subscribing {
			continue
		}
		delete(h.lists, list.channel)
		if s := list.sub; s != nil {
			h.send(s, func(ctx context.Context, c Subscription) error { return c.Unsubscribe(ctx, list.channel) })
		}
	}
	for _, s := range h.subscribers {
		if s.connected() && len(h.listsOf(s)) == 0 {
			h.disconnect(s)
			continue
		}
		h.send(s, func(ctx context.Context, c Subscription) error { return c.Ping(ctx) })
	}
	h.tick = nil
	if len(h.lists) > 0 || len(h.subscribers) > 0 {
		h.tick = time.AfterFunc(heartbeat, h.tidy)
	}
}
