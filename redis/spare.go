package redis

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker/internal/redisscript/script"
)

// spare is a client with the options of another, for requests that find its pool used up by the
// application's own commands, or full of connections that have fallen silent: holds are to be
// renewed and released meanwhile. Hooks are no options, and see none of its commands.
type spare struct {
	alone  bool         // the pool is the Driver's alone
	free   atomic.Int64 // when the pool of a Client was last seen not to be used up, in nanoseconds since epoch
	silent atomic.Int64 // until when the pool is not used, after a silence; 0 if there was none

	mu     sync.Mutex
	closed bool
	client goredis.UniversalClient // nil until it is needed
}

// afterSilence is for how long the pool is not used: each of its connections may cost a request its
// time.
const afterSilence = time.Minute

// onSilence does nothing during a silence: a spare client that is slow is not to stay in use by that.
func (s *spare) onSilence() {
	if now := int64(time.Since(epoch)); !s.isSilent(now) {
		s.silent.Store(now + int64(afterSilence))
	}
}

func (s *spare) isSilent(now int64) bool {
	until := s.silent.Load()
	return until != 0 && now < until
}

// pick returns the client to send calls to: rdb, unless its connections may be silent, or one of the
// calls would have to wait for a connection of its node's pool.
func (s *spare) pick(ctx context.Context, rdb goredis.UniversalClient, calls []script.Call) goredis.UniversalClient {
	now := int64(time.Since(epoch))
	if !s.isSilent(now) && (s.alone || !s.mustWait(ctx, now, rdb, calls)) {
		return rdb
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil && !s.closed {
		switch rdb := rdb.(type) {
		case *goredis.Client:
			o := *rdb.Options()
			o.PoolSize, o.PipelinePoolSize = spareConns, -1 // no pool for pipelines beside it
			o.MinIdleConns, o.MaxActiveConns, o.ConnMaxIdleTime, o.ContextTimeoutEnabled = 0, 0, spareIdle, true
			s.client = goredis.NewClient(&o)
		case *goredis.ClusterClient:
			o := *rdb.Options()
			o.PoolSize, o.PipelinePoolSize = max(o.PoolSize, spareConns), -1 // each request goes by itself
			o.MinIdleConns, o.MaxActiveConns, o.ConnMaxIdleTime, o.ContextTimeoutEnabled = 0, 0, spareIdle, true
			s.client = goredis.NewClusterClient(&o)
		}
	}
	return cmp.Or(s.client, rdb)
}

// mustWait reports whether one of the calls would have to wait for a connection.
func (s *spare) mustWait(ctx context.Context, now int64, rdb goredis.UniversalClient, calls []script.Call) bool {
	switch rdb := rdb.(type) {
	case *goredis.Client:
		if now-s.free.Load() < int64(recent) {
			return false
		}
		if usedUp(rdb) {
			return true
		}
		s.free.Store(now)
	case *goredis.ClusterClient:
		var free *goredis.Client // leases of a node often come one after the other
		return slices.ContainsFunc(calls, func(c script.Call) bool {
			if len(c.Keys) == 0 {
				return false
			}
			node, _ := rdb.MasterForKey(ctx, c.Keys[0].(string))
			if node == nil || node == free {
				return false
			}
			free = node
			return usedUp(node)
		})
	}
	return false
}

// recent is for how long a pool is not looked at again: a look allocates.
const recent = 5 * time.Millisecond

// The spare client of one server makes spareConns connections at most. One that is idle for longer
// than spareIdle may be silent, too.
const (
	spareConns = 4
	spareIdle  = time.Second
)

func usedUp(node *goredis.Client) bool {
	stats := node.PoolStats()
	return stats.IdleConns == 0 && int(stats.TotalConns) >= node.Options().PoolSize
}

func (s *spare) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.client != nil {
		_ = s.client.Close()
	}
}
