// Package redislocks has the locks on one Redis server that are compared, and what any such lock needs at least.
package redislocks

import (
	"context"
	"crypto/tls"
	"errors"
	"math"
	"net"
	"slices"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redigoredis "github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/wire"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/redigo"
	"github.com/go-locker/locker/redis"
)

// TTL is every hold's, far longer than any hold here lasts.
const TTL = 30 * time.Second

// The names of those that others are compared with.
const (
	Floor       = "bare"
	PipeFloor   = "bare-autopipeline"
	Scripts     = "locker-scripts"
	PipeScripts = "locker-scripts-autopipeline"
)

// NoLocks are those that are no locks.
var NoLocks = []string{Floor, PipeFloor, Scripts, PipeScripts}

const (
	lockerModule  = "github.com/go-locker/locker"
	goRedisModule = "github.com/redis/go-redis/v9"
)

// Waiting are those that wait for a lock.
var Waiting = contend.Libraries{
	{Name: "locker", Module: lockerModule, Settings: "defaults", TTL: TTL, Open: openLocker},
	{
		Name: "redsync", Module: "github.com/go-redsync/redsync/v4",
		Settings: "no limit of tries; all other settings are the defaults", TTL: TTL, Open: openRedsync,
	},
	{
		Name: "rueidislock", Module: "github.com/redis/rueidis",
		Settings: "KeyMajority 1, NoLoopTracking, TryNextAfter as long as the TTL", TTL: TTL, Open: openRueidislock,
	},
	{Name: "redislock", Module: "github.com/bsm/redislock", Settings: "LinearBackoff 10 ms", TTL: TTL, Open: openRedislock},
}

// All are those, this library's other ways to Redis, and what is no lock: a script that takes and one that gives back.
var All = append(slices.Clip(Waiting),
	contend.Library{Name: "locker-redigo", Module: lockerModule, Settings: "redigo, with a pool as large as that of go-redis", TTL: TTL, Open: openRedigo},
	contend.Library{Name: Floor, Module: goRedisModule, Settings: "EVALSHA of SET NX PX, and of GET and DEL", TTL: TTL, Open: openBare(false)},
	contend.Library{Name: PipeFloor, Module: goRedisModule, Settings: "the same through go-redis's AutoPipeline", TTL: TTL, Open: openBare(true)},
	contend.Library{Name: Scripts, Module: goRedisModule, Settings: "EVALSHA of locker's scripts, and nothing else of it", TTL: TTL, Open: openScripts(false)},
	contend.Library{Name: PipeScripts, Module: goRedisModule, Settings: "the same through go-redis's AutoPipeline", TTL: TTL, Open: openScripts(true)},
)

// Renews are those that renew what they hold, and how many locks they are made to hold at most: rueidislock has goroutines
// for each.
var Renews = map[string]int{"locker": math.MaxInt, "locker-redigo": math.MaxInt, "rueidislock": 1000}

// LosesWakeUps is who now and then waits for a lock that is free until its context ends: bench/thirdparty has how. Its
// errors are counted like everybody's; no test can want that there are none.
const LosesWakeUps = "rueidislock"

func newGoRedis(addr string, sent *wire.Tally) *goredis.Client {
	return goredis.NewClient(optionsOf(addr, sent))
}

func optionsOf(addr string, sent *wire.Tally) *goredis.Options {
	return &goredis.Options{
		Addr: addr,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return sent.Dial(ctx, &net.Dialer{Timeout: 5 * time.Second}, network, addr)
		},
	}
}

func openLocker(addrs []string, sent *wire.Tally, ttl time.Duration) (*contend.Client, error) {
	o := optionsOf(addrs[0], sent)
	o.Protocol = 2 // as Open has it
	interruptible := redis.Interruptible(o)
	rdb := goredis.NewClient(o)
	d, err := redis.NewDriver(rdb, interruptible)
	if err != nil {
		_ = rdb.Close()
		return nil, err
	}
	return clientOf(d, ttl, func() { _ = rdb.Close() })
}

func openRedigo(addrs []string, sent *wire.Tally, ttl time.Duration) (*contend.Client, error) {
	connections := goredis.NewClient(&goredis.Options{}).Options().PoolSize
	dial, interruptible := redigo.Interruptible(func(ctx context.Context, network, addr string) (net.Conn, error) {
		return sent.Dial(ctx, &net.Dialer{Timeout: 5 * time.Second}, network, addr)
	})
	pool := &redigoredis.Pool{
		MaxIdle: connections, MaxActive: connections, Wait: true,
		DialContext: func(ctx context.Context) (redigoredis.Conn, error) {
			return redigoredis.DialContext(ctx, "tcp", addrs[0], dial)
		},
	}
	d, err := redigo.NewDriver(pool, interruptible) // as Open has it
	if err != nil {
		_ = pool.Close()
		return nil, err
	}
	return clientOf(d, ttl, func() { _ = pool.Close() })
}

func clientOf(d driver.Driver, ttl time.Duration, closeIt func()) (*contend.Client, error) {
	c, err := locker.New(d, locker.WithTTL(ttl))
	if err != nil {
		closeIt()
		return nil, err
	}
	return &contend.Client{
		Waiter: func(name string) contend.LockFunc {
			m := c.Mutex(name)
			return func(ctx context.Context) (contend.UnlockFunc, error) { return m.Unlock, m.Lock(ctx) }
		},
		Hold: func(ctx context.Context, name string) (contend.UnlockFunc, func() time.Duration, error) {
			h, err := c.Mutex(name).Acquire(ctx)
			if err != nil {
				return nil, nil, err
			}
			return h.Unlock, func() time.Duration { return time.Until(h.Deadline()) }, nil
		},
		Close: func() { _ = c.Close(); closeIt() },
	}, nil
}

// What a lock needs at least.
var (
	take = goredis.NewScript(`return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])`)
	give = goredis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
)

// scripterOf closes rdb if it fails.
func scripterOf(rdb *goredis.Client, pipelined bool) (goredis.Scripter, error) {
	if !pipelined {
		return rdb, nil
	}
	pipe, err := rdb.AutoPipeline()
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return pipe, nil
}

// openBare is no lock: what it takes is taken only if nobody else wants it.
func openBare(pipelined bool) func([]string, *wire.Tally, time.Duration) (*contend.Client, error) {
	return func(addrs []string, sent *wire.Tally, ttl time.Duration) (*contend.Client, error) {
		rdb := newGoRedis(addrs[0], sent)
		to, err := scripterOf(rdb, pipelined)
		if err != nil {
			return nil, err
		}
		return &contend.Client{
			Waiter: func(name string) contend.LockFunc {
				keys := []string{name}
				unlock := func(ctx context.Context) error { return give.Run(ctx, to, keys, "owner").Err() }
				return func(ctx context.Context) (contend.UnlockFunc, error) {
					return unlock, take.Run(ctx, to, keys, "owner", ttl.Milliseconds()).Err()
				}
			},
			Close: func() { _ = rdb.Close() },
		}, nil
	}
}

func openRedsync(addrs []string, sent *wire.Tally, ttl time.Duration) (*contend.Client, error) {
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

func openRueidislock(addrs []string, sent *wire.Tally, ttl time.Duration) (*contend.Client, error) {
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
		TryNextAfter:   ttl, // by default 20 ms: a try that takes longer is undone, and then waits for a lock that is free
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

func openRedislock(addrs []string, sent *wire.Tally, ttl time.Duration) (*contend.Client, error) {
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
