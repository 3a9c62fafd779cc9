package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker/internal/redisscript"
)

// Sharded says that rdb talks to a Redis Cluster, where a plain channel would be all nodes' business.
func (r runner) Sharded() bool {
	_, ok := r.rdb.(*goredis.ClusterClient)
	return ok
}

// Locate finds the server that hears of key. In a Cluster that is the primary of the key's slot: one
// connection serves all names there.
func (r runner) Locate(ctx context.Context, key string) (redisscript.Station, error) {
	switch rdb := r.rdb.(type) {
	case *goredis.ClusterClient:
		node, err := rdb.MasterForKey(ctx, key)
		if err != nil {
			return redisscript.Station{}, err
		}
		return station(node.Options().Addr, true, node), nil
	case *goredis.Ring: // which shard a channel is on is the Ring's secret
		return redisscript.Station{}, redisscript.ErrDeaf
	default:
		return station("", false, rdb), nil
	}
}

// station makes subscriptions through rdb, which takes a connection of its own for each.
func station(name string, sharded bool, rdb goredis.UniversalClient) redisscript.Station {
	return redisscript.Station{
		Name: name,
		Dial: func(ctx context.Context) (redisscript.Subscription, error) {
			return &subscription{PubSub: rdb.Subscribe(ctx), sharded: sharded}, nil
		},
	}
}

// subscription is a connection for subscriptions. go-redis would also connect it anew by itself.
type subscription struct {
	*goredis.PubSub
	sharded bool
}

func (s *subscription) Subscribe(ctx context.Context, channels ...string) error {
	if s.sharded {
		return s.SSubscribe(ctx, channels...)
	}
	return s.PubSub.Subscribe(ctx, channels...)
}

func (s *subscription) Unsubscribe(ctx context.Context, channels ...string) error {
	if s.sharded {
		return s.SUnsubscribe(ctx, channels...)
	}
	return s.PubSub.Unsubscribe(ctx, channels...)
}

func (s *subscription) Ping(ctx context.Context) error { return s.PubSub.Ping(ctx) }

func (s *subscription) Receive(timeout time.Duration) (redisscript.Event, error) {
	received, err := s.ReceiveTimeout(context.Background(), timeout)
	if err != nil {
		return redisscript.Event{}, refusal(err)
	}
	switch m := received.(type) {
	case *goredis.Message:
		return redisscript.Event{Kind: redisscript.Message, Channel: m.Channel, Message: m.Payload}, nil
	case *goredis.Subscription:
		kind := redisscript.Subscribed
		if strings.HasSuffix(m.Kind, "unsubscribe") {
			kind = redisscript.Unsubscribed
		}
		return redisscript.Event{Kind: kind, Channel: m.Channel}, nil
	default:
		return redisscript.Event{}, nil
	}
}

// refusal is err, as an ErrDeaf if the server will not have subscriptions from this client.
func refusal(err error) error {
	var answer goredis.Error
	if errors.As(err, &answer) {
		for _, prefix := range []string{"NOPERM", "ERR unknown command"} {
			if strings.HasPrefix(answer.Error(), prefix) {
				return fmt.Errorf("%w: %w", redisscript.ErrDeaf, err)
			}
		}
	}
	return err
}
