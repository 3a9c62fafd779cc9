package redis

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// spare is a client with the options of another, for requests that find its pool used up by the
// application's own commands: holds are to be renewed and released meanwhile. Hooks are no options,
// and see none of its commands.
type spare struct {
	free atomic.Int64 // when the pool of one server was last seen not to be used up, in nanoseconds since epoch

	mu     sync.Mutex
	closed bool
	client goredis.UniversalClient // nil until it is needed
}

// pick returns the client to send to: rdb, unless a request about key would have to wait for a
// connection of its pool.
func (s *spare) pick(ctx context.Context, rdb goredis.UniversalClient, key string) goredis.UniversalClient {
	node, one := rdb.(*goredis.Client)
	now := int64(time.Since(epoch))
	if one && now-s.free.Load() < int64(recent) {
		return rdb
	}
	if cluster, ok := rdb.(*goredis.ClusterClient); ok {
		node, _ = cluster.MasterForKey(ctx, key)
	}
	if node == nil || !usedUp(node) {
		s.free.Store(now)
		return rdb
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil && !s.closed {
		switch rdb := rdb.(type) {
		case *goredis.Client:
			o := *rdb.Options()
			o.PoolSize, o.MinIdleConns, o.MaxActiveConns, o.ContextTimeoutEnabled = spareConns, 0, 0, true
			s.client = goredis.NewClient(&o)
		case *goredis.ClusterClient:
			o := *rdb.Options()
			o.PoolSize, o.MinIdleConns, o.MaxActiveConns, o.ContextTimeoutEnabled = spareConns, 0, 0, true
			s.client = goredis.NewClusterClient(&o)
		}
	}
	if s.client == nil {
		return rdb
	}
	return s.client
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
