package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"time"

	"github.com/go-redsync/redsync/v4"
	redsyncpool "github.com/go-redsync/redsync/v4/redis"
	redsyncredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	redigoredis "github.com/gomodule/redigo/redis"
	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/bench/internal/contend"
	"github.com/go-locker/locker/bench/internal/wire"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/redigo"
	"github.com/go-locker/locker/redis"
	"github.com/go-locker/locker/redlock"
)

// usualTTL is every hold's: redsync's default.
const usualTTL = 8 * time.Second

const (
	floorName    = "bare"
	ctxName      = "redsync-ctx"
	baselineName = "redsync-failfast"
)

const redsyncModule = "github.com/go-redsync/redsync/v4"

// With default time-outs of go-redis, but in the one with "ctx": there it heeds the context.
var libraries = contend.Libraries{
	{Name: "locker", Module: "github.com/go-locker/locker", Settings: "go-redis nodes", TTL: usualTTL, Open: openLocker},
	{Name: "locker-redigo", Module: "github.com/go-locker/locker", Settings: "redigo nodes", TTL: usualTTL, Open: openLockerRedigo},
	{Name: "redsync", Module: redsyncModule, Settings: "no limit of tries; all other settings are the defaults", TTL: usualTTL, Open: openRedsync(false)},
	{Name: ctxName, Module: redsyncModule, Settings: "the same, go-redis with ContextTimeoutEnabled", TTL: usualTTL, Open: openRedsync(true)},
	{
		Name: baselineName, Module: redsyncModule, Settings: "no limit of tries, WithFailFast",
		TTL: usualTTL, Open: openRedsync(false, redsync.WithFailFast(true)),
	},
	{
		Name: floorName, Module: "github.com/redis/go-redis/v9", Settings: "a script to all nodes at the same time, until a majority has answered; then the same with a second script",
		TTL: usualTTL, Open: openFloor,
	},
}

func newGoRedis(addr string, sent *wire.Tally, heedsContext bool) *goredis.Client {
	return goredis.NewClient(&goredis.Options{
		Addr:                  addr,
		ContextTimeoutEnabled: heedsContext,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return sent.Dial(ctx, &net.Dialer{Timeout: 5 * time.Second}, network, addr)
		},
	})
}

func newGoRedisEach(addrs []string, sent *wire.Tally, heedsContext bool) ([]*goredis.Client, func()) {
	nodes := make([]*goredis.Client, len(addrs))
	for i, addr := range addrs {
		nodes[i] = newGoRedis(addr, sent, heedsContext)
	}
	return nodes, func() {
		for _, rdb := range nodes {
			_ = rdb.Close()
		}
	}
}

func openLocker(addrs []string, sent *wire.Tally, ttl time.Duration) (*contend.Client, error) {
	rdbs, closeNodes := newGoRedisEach(addrs, sent, false)
	nodes := make([]driver.Driver, len(rdbs))
	for i, rdb := range rdbs {
		var err error
		if nodes[i], err = redis.NewDriver(rdb); err != nil {
			closeNodes()
			return nil, err
		}
	}
	return openRedlock(nodes, ttl, closeNodes)
}

func openLockerRedigo(addrs []string, sent *wire.Tally, ttl time.Duration) (*contend.Client, error) {
	var pools []*redigoredis.Pool
	closeNodes := func() {
		for _, p := range pools {
			_ = p.Close()
		}
	}
	nodes := make([]driver.Driver, len(addrs))
	for i, addr := range addrs {
		pool := newRedigoPool(addr, sent)
		pools = append(pools, pool)
		var err error
		if nodes[i], err = redigo.NewDriver(pool); err != nil {
			closeNodes()
			return nil, err
		}
	}
	return openRedlock(nodes, ttl, closeNodes)
}

// newRedigoPool has as many connections as those that redigo:// makes.
func newRedigoPool(addr string, sent *wire.Tally) *redigoredis.Pool {
	dial := redigoredis.DialContextFunc(func(ctx context.Context, network, addr string) (net.Conn, error) {
		return sent.Dial(ctx, &net.Dialer{Timeout: 5 * time.Second}, network, addr)
	})
	return &redigoredis.Pool{
		MaxIdle: redigoConnections, MaxActive: redigoConnections, Wait: true,
		DialContext: func(ctx context.Context) (redigoredis.Conn, error) {
			return redigoredis.DialContext(ctx, "tcp", addr, dial,
				redigoredis.DialReadTimeout(3*time.Second), redigoredis.DialWriteTimeout(3*time.Second))
		},
	}
}

const redigoConnections = 20

func openRedlock(nodes []driver.Driver, ttl time.Duration, closeNodes func()) (*contend.Client, error) {
	c, err := redlock.New(nodes, locker.WithTTL(ttl))
	if err != nil {
		closeNodes()
		return nil, err
	}
	return &contend.Client{
		Waiter: func(name string) contend.LockFunc {
			m := c.Mutex(name)
			return func(ctx context.Context) (contend.UnlockFunc, error) { return m.Unlock, m.Lock(ctx) }
		},
		Close: func() { _ = c.Close(); closeNodes() },
	}, nil
}

func openRedsync(heedsContext bool, opts ...redsync.Option) func([]string, *wire.Tally, time.Duration) (*contend.Client, error) {
	return func(addrs []string, sent *wire.Tally, ttl time.Duration) (*contend.Client, error) {
		opts := append(slices.Clone(opts), redsync.WithExpiry(ttl), redsync.WithTries(math.MaxInt))
		rdbs, closeNodes := newGoRedisEach(addrs, sent, heedsContext)
		pools := make([]redsyncpool.Pool, len(rdbs))
		for i, rdb := range rdbs {
			pools[i] = redsyncredis.NewPool(rdb)
		}
		rs := redsync.New(pools...)
		return &contend.Client{
			// A Mutex for each hold. With WithFailFast its Unlock returns before it has asked all nodes, and
			// those asked late are asked about the value of the next hold, if Lock has set that meanwhile.
			Waiter: func(name string) contend.LockFunc {
				return func(ctx context.Context) (contend.UnlockFunc, error) {
					m := rs.NewMutex(name, opts...)
					return func(ctx context.Context) error { return unlockRedsync(ctx, m) }, m.LockContext(ctx)
				}
			},
			Close: closeNodes,
		}, nil
	}
}

func unlockRedsync(ctx context.Context, m *redsync.Mutex) error {
	ok, err := m.UnlockContext(ctx)
	switch {
	case ok:
		return nil
	case err == nil:
		return redsync.ErrFailed
	}
	return err
}

// What a lock on one node needs at least.
var (
	take = goredis.NewScript(`return redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2])`)
	give = goredis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
)

// floor is no lock: nobody counts what the nodes say, and nobody cleans up.
type floor struct{ nodes []*goredis.Client }

func openFloor(addrs []string, sent *wire.Tally, ttl time.Duration) (*contend.Client, error) {
	rdbs, closeNodes := newGoRedisEach(addrs, sent, false)
	f := floor{nodes: rdbs}
	return &contend.Client{
		Waiter: func(name string) contend.LockFunc {
			keys := []string{name}
			unlock := func(ctx context.Context) error { return f.ask(ctx, give, keys, "owner") }
			return func(ctx context.Context) (contend.UnlockFunc, error) {
				return unlock, f.ask(ctx, take, keys, "owner", ttl.Milliseconds())
			}
		},
		Close: closeNodes,
	}, nil
}

// ask returns when a majority has answered.
func (f floor) ask(ctx context.Context, script *goredis.Script, keys []string, args ...any) error {
	answers := make(chan error, len(f.nodes))
	for _, rdb := range f.nodes {
		go func() {
			err := script.Run(ctx, rdb, keys, args...).Err()
			if errors.Is(err, goredis.Nil) { // an earlier give has yet to arrive
				err = nil
			}
			answers <- err
		}()
	}
	var failures []error
	for agreed := 0; agreed <= len(f.nodes)/2; {
		if err := <-answers; err == nil {
			agreed++
		} else if failures = append(failures, err); len(failures) > (len(f.nodes)-1)/2 {
			return fmt.Errorf("no majority: %w", errors.Join(failures...))
		}
	}
	return nil
}
