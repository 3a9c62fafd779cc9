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

// prefixEscape escapes as package locker does.
var prefixEscape = strings.NewReplacer("%", "%25", ":", "%3A")

// cleanUp removes what the locks have left. It returns what stays, and for how long, or "". Only Redis keeps
// something of a free lock: the last token, so that the next one is larger.
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
	return fmt.Sprintf("the last tokens of %d locks under the prefix %q, about 120 bytes each, stay for a day: they could not be deleted: %v",
		len(g.names), g.prefix, err)
}

// deleteKeys deletes by name: a search for keys by pattern would load a server in use.
func (g *ground) deleteKeys() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second) // also when the check was interrupted
	defer cancel()
	servers, err := g.deployment.redisServers(ctx)
	if err != nil {
		return err
	}
	g.mu.Lock() // a Locker that hangs may still have a goroutine
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
