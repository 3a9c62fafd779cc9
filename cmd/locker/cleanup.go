package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker/internal/redisscript/script"
)

// prefixEscape escapes as package locker does.
var prefixEscape = strings.NewReplacer("%", "%25", ":", "%3A")

// cleanUp removes what the locks have left, and returns what stays, or "".
func (g *ground) cleanUp() string { return g.cleanUpWithin(20 * time.Second) }

func (g *ground) cleanUpWithin(patience time.Duration) string {
	ctx, cancel := context.WithTimeout(context.Background(), patience) // also when the check was interrupted
	defer cancel()
	switch g.deployment.kind() {
	case "redis", "redigo", "redlock":
		if err := g.deleteKeys(ctx); err != nil {
			return fmt.Sprintf("keys under the prefix %q stay, because they could not be deleted: keys of locks for at most their TTL and a minute, "+
				"and the key that makes tokens rise, of about 100 bytes (in a Redis Cluster one for each slot in use): %v", g.prefix, err)
		}
	case "mysql", "postgres":
		if err := g.dropTable(ctx); err != nil {
			return fmt.Sprintf("the table %s stays, because it could not be dropped: %v", g.table, err)
		}
		if g.table == "" {
			return "rows of the locks stay in the table for an hour, because the user may not create a table for the check"
		}
	case "sqlite":
		return "rows of the locks stay for an hour, until a program that uses the file deletes them"
	case "s3":
		return "objects of the locks stay for a day, until a program that uses the bucket deletes them"
	}
	return ""
}

// deleteKeys deletes by name: a search for keys by pattern would load a server in use. Under a
// prefix of others the marks, by which tokens rise though names are forgotten, are theirs, too.
func (g *ground) deleteKeys(ctx context.Context) error {
	servers, err := g.deployment.redisServers(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, rdb := range servers {
		_, err := rdb.Pipelined(ctx, func(p goredis.Pipeliner) error {
			_, cluster := rdb.(*goredis.ClusterClient)
			for key := range g.keys(cluster) {
				p.Del(ctx, key)
			}
			return nil
		})
		errs = append(errs, err, rdb.Close())
	}
	return errors.Join(errs...)
}

// keys returns the keys of all names, which nobody else uses, and of their marks.
func (g *ground) keys(cluster bool) map[string]bool {
	g.mu.Lock() // a Locker that hangs may still have a goroutine
	defer g.mu.Unlock()
	keys := map[string]bool{}
	for name := range g.names {
		name = prefixEscape.Replace(g.prefix) + ":" + name
		for _, key := range script.Keys(name) {
			keys[key] = true
		}
		if g.mark == "" {
			keys[script.MarkKey(name, cluster)] = true
		}
	}
	return keys
}
