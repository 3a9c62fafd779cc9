package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker/internal/redisscript"
)

// prefixEscape is that of package locker.
var prefixEscape = strings.NewReplacer("%", "%25", ":", "%3A")

// cleanUp removes what the locks have left, and returns what stays and for how long, or nothing. Redis alone keeps
// something of a lock that nobody holds: the last token, so that the next one is larger.
func (g *ground) cleanUp() string {
	switch g.deployment.kind() {
	case "redis", "redigo", "redlock":
	default:
		return ""
	}
	err := g.deleteKeys()
	if err == nil {
		return ""
	}
	return fmt.Sprintf("%d locks under the prefix %q have left their last token, about 120 bytes each, for a day: they could not be deleted: %v",
		len(g.names), g.prefix, err)
}

// deleteKeys deletes by name: to look for keys by pattern is no work for a server in use.
func (g *ground) deleteKeys() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second) // also when the check was interrupted
	defer cancel()
	servers, err := g.deployment.redisServers(ctx)
	if err != nil {
		return err
	}
	g.mu.Lock() // a Locker that hangs may have left a goroutine behind
	all := slices.Sorted(maps.Keys(g.names))
	g.mu.Unlock()
	var errs []error
	for _, rdb := range servers {
		for names := range slices.Chunk(all, 200) {
			_, err := rdb.Pipelined(ctx, func(p goredis.Pipeliner) error {
				for _, name := range names {
					key := redisscript.Key(prefixEscape.Replace(g.prefix) + ":" + name)
					p.Del(ctx, key, key+":queue")
				}
				return nil
			})
			if err != nil {
				errs = append(errs, err)
				break
			}
		}
		errs = append(errs, rdb.Close())
	}
	return errors.Join(errs...)
}
