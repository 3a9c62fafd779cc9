package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"math"
	"net"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/redis"
)

// ttl is every hold's, far longer than any hold here lasts.
const ttl = 30 * time.Second

type (
	// library is one way to lock on Redis.
	library struct {
		name, module, settings string

		// open makes a client as a process of its own would have it, with its own connections.
		open func(addr string, sent *tally) (*client, error)
	}

	client struct {
		waiter func(name string) lockFunc // what one waiter locks with, again and again
		close  func()
	}

	// lockFunc waits until it holds the lock or ctx is done. ctx stays alive through the hold, and has
	// a deadline further off than the TTL: some libraries end the hold with ctx, or invent a deadline.
	lockFunc   func(ctx context.Context) (unlockFunc, error)
	unlockFunc func(ctx context.Context) error
)

var libraries = []library{
	{"locker", "github.com/go-locker/locker", "defaults", openLocker},
	{"redsync", "github.com/go-redsync/redsync/v4", "no limit of tries, else defaults", openRedsync},
	{"rueidislock", "github.com/redis/rueidis", "KeyMajority 1, NoLoopTracking", openRueidislock},
	{"redislock", "github.com/bsm/redislock", "LinearBackoff 10 ms", openRedislock},
}

func libraryNamed(name string) (library, error) {
	for _, l := range libraries {
		if l.name == name {
			return l, nil
		}
	}
	return library{}, fmt.Errorf("no library is called %q", name)
}

func newGoRedis(addr string, sent *tally) *goredis.Client {
	return goredis.NewClient(&goredis.Options{
		Addr: addr,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return sent.dial(ctx, &net.Dialer{Timeout: 5 * time.Second}, network, addr)
		},
	})
}

func openLocker(addr string, sent *tally) (*client, error) {
	rdb := newGoRedis(addr, sent)
	c, err := redis.New(rdb, locker.WithTTL(ttl))
	if err != nil {
		_ = rdb.Close()
		return nil, err
	}
	return &client{
		waiter: func(name string) lockFunc {
			m := c.Mutex(name)
			return func(ctx context.Context) (unlockFunc, error) { return m.Unlock, m.Lock(ctx) }
		},
		close: func() { _, _ = c.Close(), rdb.Close() },
	}, nil
}

func openRedsync(addr string, sent *tally) (*client, error) {
	rdb := newGoRedis(addr, sent)
	rs := redsync.New(redsyncredis.NewPool(rdb))
	return &client{
		waiter: func(name string) lockFunc {
			m := rs.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt))
			unlock := func(ctx context.Context) error {
				ok, err := m.UnlockContext(ctx)
				if err == nil && !ok {
					err = redsync.ErrFailed
				}
				return err
			}
			return func(ctx context.Context) (unlockFunc, error) { return unlock, m.LockContext(ctx) }
		},
		close: func() { _ = rdb.Close() },
	}, nil
}

func openRueidislock(addr string, sent *tally) (*client, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{
			InitAddress:       []string{addr},
			ForceSingleClient: true,
			DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return sent.dial(ctx, d, "tcp", addr)
			},
		},
		KeyValidity:    ttl,
		KeyMajority:    1, // one server: more keys on it add work and no safety
		NoLoopTracking: true,
	})
	if err != nil {
		return nil, err
	}
	return &client{
		waiter: func(name string) lockFunc {
			return func(ctx context.Context) (unlockFunc, error) {
				_, cancel, err := l.WithContext(ctx, name)
				return func(context.Context) error { cancel(); return nil }, err
			}
		},
		close: l.Close,
	}, nil
}

func openRedislock(addr string, sent *tally) (*client, error) {
	rdb := newGoRedis(addr, sent)
	l := redislock.New(rdb)
	return &client{
		waiter: func(name string) lockFunc {
			return func(ctx context.Context) (unlockFunc, error) {
				lock, err := l.Obtain(ctx, name, ttl, &redislock.Options{
					RetryStrategy: redislock.LinearBackoff(10 * time.Millisecond),
				})
				if err != nil {
					return nil, err
				}
				return lock.Release, nil
			}
		},
		close: func() { _ = rdb.Close() },
	}, nil
}

// openClients opens n clients, or none.
func (l library) openClients(n int, addr string, sent *tally) ([]*client, func(), error) {
	clients := make([]*client, 0, n)
	closeAll := func() {
		for _, c := range clients {
			c.close()
		}
	}
	for range n {
		c, err := l.open(addr, sent)
		if err != nil {
			closeAll()
			return nil, nil, fmt.Errorf("%s: %w", l.name, err)
		}
		clients = append(clients, c)
	}
	return clients, closeAll, nil
}
