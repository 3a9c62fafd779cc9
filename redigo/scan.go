package redigo

import (
	"context"
	"errors"

	"github.com/gomodule/redigo/redis"

	"github.com/go-locker/locker/internal/redisscript"
)

// Scans implements redisscript.Runner.
func (r *runner) Scans(context.Context) ([]redisscript.Scan, error) {
	return []redisscript.Scan{r.scan}, nil
}

// scan tries again, on another connection, if the one that it has was closed by the server while it
// was idle.
func (r *runner) scan(ctx context.Context, cursor uint64, match string) (keys []string, next uint64, err error) {
	for idle := r.pool.IdleCount(); ; idle-- {
		keys, next, err = r.scanOnce(ctx, cursor, match)
		if _, answered := errors.AsType[redis.Error](err); err == nil || answered || idle == 0 || isTimeout(err) || ctx.Err() != nil {
			return keys, next, err
		}
	}
}

func (r *runner) scanOnce(ctx context.Context, cursor uint64, match string) (keys []string, next uint64, err error) {
	c, err := r.borrow(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = c.Close() }() // gives it back
	reply, err := redis.Values(redis.DoContext(c, ctx, "SCAN", cursor, "MATCH", match, "COUNT", redisscript.ScanCount))
	if err == nil {
		_, err = redis.Scan(reply, &next, &keys)
	}
	return keys, next, err
}
