package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker/internal/redisscript/wait"
)

// Sharded reports whether rdb talks to a Redis Cluster, where a plain channel would be all nodes'
// business.
func (r *runner) Sharded() bool { return r.cluster != nil }

// Locate finds the server that hears of key. In a Cluster that is the primary of the key's slot:
// one connection serves all names there.
func (r *runner) Locate(ctx context.Context, key string) (wait.Publisher, error) {
	if _, ok := r.rdb.(*goredis.Ring); ok { // which shard a channel is on is the Ring's secret
		return wait.Publisher{}, wait.ErrNoSubscriptions
	}
	name, rdb := "", r.rdb
	if r.cluster != nil {
		node, err := r.cluster.owner(ctx, key)
		if err != nil {
			return wait.Publisher{}, err
		}
		name, rdb = node.Options().Addr, node
	}
	return wait.Publisher{Name: name, Dial: func(ctx context.Context) (wait.Subscription, error) {
		return &subscription{PubSub: rdb.Subscribe(ctx), cluster: r.cluster}, nil // on a connection of its own
	}}, nil
}

// subscription is a connection for subscriptions.
type subscription struct {
	*goredis.PubSub
	cluster *cluster // nil: channels are not sharded

	mu    sync.Mutex
	asked []asked // and not answered, in order: an answer that is an error names no channel. Sharded only.
}

type asked struct {
	channel string
	leave   bool
}

func (s *subscription) Subscribe(ctx context.Context, channels ...string) error {
	if s.cluster != nil {
		return s.each(ctx, channels, false, s.SSubscribe)
	}
	return s.PubSub.Subscribe(ctx, channels...)
}

func (s *subscription) Unsubscribe(ctx context.Context, channels ...string) error {
	if s.cluster != nil {
		return s.each(ctx, channels, true, s.SUnsubscribe)
	}
	return s.PubSub.Unsubscribe(ctx, channels...)
}

// each sends channels one by one: they need not be on one slot.
func (s *subscription) each(ctx context.Context, channels []string, leave bool, send func(context.Context, ...string) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, channel := range channels {
		if err := send(ctx, channel); err != nil {
			s.cluster.noticed(err)
			return err
		}
		s.asked = append(s.asked, asked{channel, leave})
	}
	return nil
}

func (s *subscription) Ping(ctx context.Context) error { return s.PubSub.Ping(ctx) }

// ended keeps go-redis from connecting a subscription anew by itself, which may be to a server that
// is no longer the one that publishes: it dials with the context of the call that has failed.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// Receive makes an error of what go-redis panics on: what no Redis server says.
func (s *subscription) Receive(timeout time.Duration) (event wait.Event, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("what was received is no message: %v", p)
		}
	}()
	received, err := s.ReceiveTimeout(ended, timeout)
	if err != nil {
		return s.failed(err)
	}
	switch m := received.(type) {
	case *goredis.Message:
		return wait.Event{Kind: wait.Message, Channel: m.Channel, Message: m.Payload}, nil
	case *goredis.Subscription:
		event := wait.Event{Kind: wait.Subscribed, Channel: m.Channel}
		leave := strings.HasSuffix(m.Kind, "unsubscribe")
		if leave {
			event.Kind = wait.Unsubscribed
		}
		if !s.answered(asked{m.Channel, leave}) && leave {
			s.cluster.noticed(errMoved)
		}
		return event, nil
	default:
		return wait.Event{}, nil
	}
}

var errMoved = errors.New("the channel is no longer there")

// answered takes a off what was asked for, if it is there.
func (s *subscription) answered(a asked) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.asked, a)
	if i >= 0 {
		s.asked = slices.Delete(s.asked, i, i+1)
	}
	return i >= 0
}

// failed turns the refusal of one channel, whose slot is elsewhere, into the event that it is. All
// else ends the connection: as an ErrNoSubscriptions if the server will not have subscriptions from
// this client.
func (s *subscription) failed(err error) (wait.Event, error) {
	s.cluster.noticed(err)
	var answer goredis.Error
	if !errors.As(err, &answer) {
		return wait.Event{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, moved := goredis.IsMovedError(err); moved && len(s.asked) > 0 {
		first := s.asked[0]
		s.asked = s.asked[1:]
		return wait.Event{Kind: wait.Unsubscribed, Channel: first.channel}, nil
	}
	return wait.Event{}, wait.Refusal(answer)
}
