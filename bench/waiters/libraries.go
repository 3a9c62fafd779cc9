package main

import (
	"context"
	"crypto/tls"
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
	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/wire"
	"github.com/go-locker/locker/redis"
)

// ttl is every hold's, far longer than any hold here lasts.
const ttl = 30 * time.Second

var libraries = contend.Libraries{
	{Name: "locker", Module: "github.com/go-locker/locker", Settings: "defaults", Open: openLocker},
	{
		Name: "redsync", Module: "github.com/go-redsync/redsync/v4",
		Settings: "no limit of tries, else defaults", Open: openRedsync,
	},
	{
		Name: "rueidislock", Module: "github.com/redis/rueidis",
		Settings: "KeyMajority 1, NoLoopTracking", Open: openRueidislock,
	},
	{Name: "redislock", Module: "github.com/bsm/redislock", Settings: "LinearBackoff 10 ms", Open: openRedislock},
}

func newGoRedis(addr string, sent *wire.Tally) *goredis.Client {
	return goredis.NewClient(&goredis.Options{
		Addr: addr,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return sent.Dial(ctx, &net.Dialer{Timeout: 5 * time.Second}, network, addr)
		},
	})
}

func openLocker(addrs []string, sent *wire.Tally) (*contend.Client, error) {
	rdb := newGoRedis(addrs[0], sent)
	c, err := redis.New(rdb, locker.WithTTL(ttl))
	if err != nil {
		_ = rdb.Close()
		return nil, err
	}
	return &contend.Client{
		Waiter: func(name string) contend.LockFunc {
			m := c.Mutex(name)
			return func(ctx context.Context) (contend.UnlockFunc, error) { return m.Unlock, m.Lock(ctx) }
		},
		Close: func() { _, _ = c.Close(), rdb.Close() },
	}, nil
}

func openRedsync(addrs []string, sent *wire.Tally) (*contend.Client, error) {
	rdb := newGoRedis(addrs[0], sent)
	rs := redsync.New(redsyncredis.NewPool(rdb))
	return &contend.Client{
		Waiter: func(name string) contend.LockFunc {
			m := rs.NewMutex(name, redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt))
			unlock := func(ctx context.Context) error {
				ok, err := m.UnlockContext(ctx)
				if err == nil && !ok {
					err = redsync.ErrFailed
				}
				return err
			}
			return func(ctx context.Context) (contend.UnlockFunc, error) { return unlock, m.LockContext(ctx) }
		},
		Close: func() { _ = rdb.Close() },
	}, nil
}

func openRueidislock(addrs []string, sent *wire.Tally) (*contend.Client, error) {
	l, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption: rueidis.ClientOption{
			InitAddress:       addrs[:1],
			ForceSingleClient: true,
			DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
				return sent.Dial(ctx, d, "tcp", addr)
			},
		},
		KeyValidity:    ttl,
		KeyMajority:    1, // one server: more keys on it add work and no safety
		NoLoopTracking: true,
	})
	if err != nil {
		return nil, err
	}
	return &contend.Client{
		Waiter: func(name string) contend.LockFunc {
			return func(ctx context.Context) (contend.UnlockFunc, error) {
				_, cancel, err := l.WithContext(ctx, name)
				return func(context.Context) error { cancel(); return nil }, err
			}
		},
		Close: l.Close,
	}, nil
}

func openRedislock(addrs []string, sent *wire.Tally) (*contend.Client, error) {
	rdb := newGoRedis(addrs[0], sent)
	l := redislock.New(rdb)
	return &contend.Client{
		Waiter: func(name string) contend.LockFunc {
			return func(ctx context.Context) (contend.UnlockFunc, error) {
				lock, err := l.Obtain(ctx, name, ttl, &redislock.Options{
					RetryStrategy: redislock.LinearBackoff(10 * time.Millisecond),
				})
				if err != nil {
					return nil, err
				}
				return lock.Release, nil
			}
		},
		Close: func() { _ = rdb.Close() },
	}, nil
}
