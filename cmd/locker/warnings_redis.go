package main

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
	"github.com/go-locker/locker/internal/redisurl"
)

// redisWarnings returns what the servers of Redis tell of themselves that is dangerous for locks of
// a TTL, beside what a Client warns of. What the user may not ask for is left out.
func (d deployment) redisWarnings(ctx context.Context, ttl time.Duration) []string {
	switch d.kind() {
	case "redis", "redigo", "redlock":
	default:
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	servers, err := d.redisServers(ctx)
	if err != nil {
		return nil
	}
	var warnings []string
	for i, rdb := range servers {
		if info, err := rdb.Info(ctx, "persistence").Result(); err == nil && strings.Contains(info, "aof_enabled:0") {
			of := ""
			if len(servers) > 1 {
				of = d.Hosts[i] + ": "
			}
			warnings = append(warnings, of+"appendonly is no: a restart of the server forgets locks that are held, and others get them; set it to yes")
		}
		_ = rdb.Close()
	}
	return append(warnings, d.sentinelWarnings(ctx, ttl)...)
}

// outlasted is how much of a TTL an outage may take without an end of a hold, whenever it begins.
const outlasted = 2.0 / 5

// sentinelWarnings warns of a failover that takes longer than holds last: the sentinels begin it
// when the primary has not answered for down-after-milliseconds.
func (d deployment) sentinelWarnings(ctx context.Context, ttl time.Duration) []string {
	query := d.Query
	if !query.Has("master_name") {
		return nil
	}
	for _, addr := range adapter.Addrs(&d.URL, redisurl.SentinelPort) {
		o := &goredis.Options{Addr: addr, Username: query.Get("sentinel_username"), Password: query.Get("sentinel_password"), DialerRetries: 1}
		if d.secure() {
			config, err := adapter.TLS(ctx, &driver.URL{Scheme: d.Scheme, Query: maps.Clone(query)}, "", "")
			if err != nil {
				return nil
			}
			o.TLSConfig = config.Config
		}
		sentinel := goredis.NewSentinelClient(o)
		master, err := sentinel.Master(ctx, query.Get("master_name")).Result()
		_ = sentinel.Close()
		if ms, _ := strconv.Atoi(master["down-after-milliseconds"]); err == nil {
			if after := time.Duration(ms) * time.Millisecond; after > time.Duration(outlasted*float64(ttl)) {
				return []string{fmt.Sprintf("down-after-milliseconds of the sentinels is %d; a hold with a TTL of %v outlasts an outage of two fifths of the TTL, so that "+
					"a failover ends it; set down-after-milliseconds to 5000, or use a TTL of more than 2.5 times the duration of a failover", ms, ttl)}
			}
			return nil
		}
	}
	return nil
}
