package redis

import (
	"context"
	"slices"
	"strings"
	"sync"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker/internal/redisscript"
)

// Scans implements redisscript.Runner: of the server, each primary of a Cluster, or each shard of a
// Ring that is up.
func (r *runner) Scans(ctx context.Context) (scans []redisscript.Scan, err error) {
	var servers []*goredis.Client
	var mu sync.Mutex
	add := func(_ context.Context, server *goredis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		servers = append(servers, server)
		return nil
	}
	switch rdb := r.rdb.(type) {
	case *goredis.ClusterClient:
		err = rdb.ForEachMaster(ctx, add)
	case *goredis.Ring:
		err = rdb.ForEachShard(ctx, add)
	default:
		return []redisscript.Scan{scanOf(rdb)}, nil
	}
	slices.SortFunc(servers, func(a, b *goredis.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
	for _, server := range servers {
		scans = append(scans, scanOf(server))
	}
	return scans, err
}

func scanOf(server goredis.Cmdable) redisscript.Scan {
	return func(ctx context.Context, cursor uint64, match string) ([]string, uint64, error) {
		return server.Scan(ctx, cursor, match, redisscript.ScanCount).Result()
	}
}
