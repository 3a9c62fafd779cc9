package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker/internal/redisscript"
)

// prefixEscape escapes as package locker does.
var prefixEscape = strings.NewReplacer("%", "%25", ":", "%3A")

// cleanUp removes what the locks have left for good, and returns what stays, or "". Only Redis keeps something: the marks of the prefix, by
// which tokens rise though names are forgotten. Under a prefix of others the marks are theirs, too.
func (g *ground) cleanUp() string {
	switch g.deployment.kind() {
	case "redis", "redigo", "redlock":
	default:
		return ""
	}
	if g.mark != "" {
		return ""
	}
	err := g.deleteMarks()
	if err == nil {
		return ""
	}
	return fmt.Sprintf("what makes the tokens under the prefix %q rise, a key of about 100 bytes, in a Redis Cluster one for each slot in use, stays: it could not be deleted: %v",
		g.prefix, err)
}

// deleteMarks deletes by name: a search for keys by pattern would load a server in use.
func (g *ground) deleteMarks() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second) // also when the check was interrupted
	defer cancel()
	servers, err := g.deployment.redisServers(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, rdb := range servers {
		_, err := rdb.Pipelined(ctx, func(p goredis.Pipeliner) error {
			_, cluster := rdb.(*goredis.ClusterClient)
			for key := range g.marks(cluster) {
				p.Del(ctx, key)
			}
			return nil
		})
		errs = append(errs, err, rdb.Close())
	}
	return errors.Join(errs...)
}

// marks returns the keys of the marks.
func (g *ground) marks(cluster bool) map[string]bool {
	g.mu.Lock() // a Locker that hangs may still have a goroutine
	defer g.mu.Unlock()
	keys := map[string]bool{}
	for name := range g.names {
		keys[redisscript.MarkKey(prefixEscape.Replace(g.prefix)+":"+name, cluster)] = true
	}
	return keys
}
