package redigo

import (
	"context"

	"github.com/gomodule/redigo/redis"

	"github.com/go-locker/locker/internal/redisscript"
)

// Scans implements redisscript.Runner.
func (r *runner) Scans(context.Context) ([]redisscript.Scan, error) {
	return []redisscript.Scan{r.scan}, nil
}

func (r *runner) scan(ctx context.Context, cursor uint64, match string) (keys []string, next uint64, err error) {
	answers, _, err := r.request(ctx, &pipeline{scan: redis.Args{cursor, "MATCH", match, "COUNT", redisscript.ScanCount}})
	if err != nil {
		return nil, 0, err
	}
	reply, err := redis.Values(answers[0], nil)
	if err == nil {
		_, err = redis.Scan(reply, &next, &keys)
	}
	return keys, next, err
}
