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
// application's own commands: holds are to be renewed and released meanwhile. Hooks are no options,
// and see none of its commands.
type spare struct {
	free atomic.Int64 // when the pool of a Client was last seen not to be used up, in nanoseconds since epoch

	mu     sync.Mutex
	closed bool
	client goredis.UniversalClient // nil until it is needed
}

// pick returns the client to send calls to: rdb, unless one of them would have to wait for a
// connection of its node's pool.
func (s *spare) pick(ctx context.Context, rdb goredis.UniversalClient, calls []script.Call) goredis.UniversalClient {
	switch rdb := rdb.(type) {
	case *goredis.Client:
		now := int64(time.Since(epoch))
		if now-s.free.Load() < int64(recent) {
			return rdb
		}
		if !usedUp(rdb) {
			s.free.Store(now)
			return rdb
		}
	case *goredis.ClusterClient:
		var free *goredis.Client // leases of a node often come one after the other
		if !slices.ContainsFunc(calls, func(c script.Call) bool {
			if len(c.Keys) == 0 {
				return false
			}
			node, _ := rdb.MasterForKey(ctx, c.Keys[0].(string))
			if node == nil || node == free {
				return false
			}
			free = node
			return usedUp(node)
		}) {
			return rdb
		}
	default:
		return rdb
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil && !s.closed {
		switch rdb := rdb.(type) {
		case *goredis.Client:
			o := *rdb.Options()
			o.PoolSize, o.PipelinePoolSize = spareConns, -1 // no pool for pipelines beside it
			o.MinIdleConns, o.MaxActiveConns, o.ContextTimeoutEnabled = 0, 0, true
			s.client = goredis.NewClient(&o)
		case *goredis.ClusterClient:
			o := *rdb.Options()
			o.PoolSize, o.PipelinePoolSize = spareConns, -1
			o.MinIdleConns, o.MaxActiveConns, o.ContextTimeoutEnabled = 0, 0, true
			s.client = goredis.NewClusterClient(&o)
		}
	}
	return cmp.Or(s.client, rdb)
}

// recent is for how long a pool is not looked at again: a look allocates.
const recent = 5 * time.Millisecond

// spareConns is how many connections the spare client makes at most, to each server.
const spareConns = 4

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
