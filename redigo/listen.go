package redigo

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/go-locker/locker/internal/redisscript/wait"
)

// Sharded returns false: a pool is of one server.
func (r *runner) Sharded() bool { return false }

// Locate knows of one server, and dials it as the pool does. The connection is none of the pool's,
// which may be allowed a single one.
func (r *runner) Locate(context.Context, string) (wait.Publisher, error) {
	return wait.Publisher{Dial: func(ctx context.Context) (wait.Subscription, error) {
		c, err := r.dial(ctx)
		if err != nil {
			return nil, err
		}
		return &subscription{conn: c}, nil
	}}, nil
}

// subscription is a connection for subscriptions. redigo lets one goroutine send and another
// receive.
type subscription struct {
	conn    redis.Conn
	sending sync.Mutex
}

func (s *subscription) Subscribe(ctx context.Context, channels ...string) error {
	return s.send(ctx, "SUBSCRIBE", channels...)
}

func (s *subscription) Unsubscribe(ctx context.Context, channels ...string) error {
	return s.send(ctx, "UNSUBSCRIBE", channels...)
}

func (s *subscription) Ping(ctx context.Context) error { return s.send(ctx, "PING") }

func (s *subscription) send(ctx context.Context, name string, args ...string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	if err := s.conn.Send(name, redis.Args{}.AddFlat(args)...); err != nil {
		return err
	}
	return s.conn.Flush()
}

// Receive does without redis.PubSubConn, which takes the pong of a connection that has no
// subscription yet for an error.
func (s *subscription) Receive(timeout time.Duration) (wait.Event, error) {
	received, err := redis.ReceiveWithTimeout(s.conn, timeout)
	if answer, ok := errors.AsType[redis.Error](err); ok {
		err = wait.Refusal(answer)
	}
	if err != nil {
		return wait.Event{}, err
	}
	parts, _ := received.([]any)
	if len(parts) != 3 {
		return wait.Event{}, nil // a pong, with a subscription or without
	}
	var text [3]string // of a subscription's, the last is a number
	for i := range parts {
		text[i], _ = redis.String(parts[i], nil)
	}
	event := wait.Event{Channel: text[1]}
	switch text[0] {
	case "message":
		event.Kind, event.Message = wait.Message, text[2]
	case "subscribe":
		event.Kind = wait.Subscribed
	case "unsubscribe":
		event.Kind = wait.Unsubscribed
	}
	return event, nil
}

// Close ends Receive and requests under way.
func (s *subscription) Close() error { return s.conn.Close() }
