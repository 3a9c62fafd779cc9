// Package redigofence refuses writes to Redis, or Valkey, whose fencing token is stale, through
// gomodule/redigo.
//
//	err := redigofence.Set(ctx, pool, "orders/42", m.FencingToken(), "paid", 0)
//
// It is package redisfence for another client library. The documentation of redisfence holds here,
// too: on the token's key, on what the server forgets, and on rights. The two packages may be
// mixed.
//
// redigo does not send a request again by itself. After an error that does not come from the
// server, such as a lost connection, the write may have been made. It may also be made later, even
// after the next write of the same holder: a token orders holders, not the requests of one holder.
// If a second run of the script does no harm (HSET, but not HINCRBY), it can be run again with the
// same token.
//
// The end of a context ends a request on a connection. It ends a dial only if the pool has a
// DialContext.
package redigofence

import (
	"cmp"
	"context"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/internal/fencescript"
)

// Script is a Lua script that runs if a token is not stale. It may be used by several goroutines.
type Script struct{ script *redis.Script }

const name = "redigofence" // whose errors these are

// NewScript makes a Script of body, which finds its KEYS and ARGV as any script of Redis does, and
// returns its reply in the same way. It must not begin with a shebang. NewScript makes no request:
// the server reports errors in body when the Script runs.
func NewScript(body string) *Script {
	const counted = -1 // the number of keys comes with them
	return &Script{redis.NewScript(counted, fencescript.Source(body))}
}

// Run runs the script on keys and args if token is above 0, and not below the token in tokenKey. In
// the same step it stores token in tokenKey. Otherwise it does nothing, and returns a
// [*fence.StaleError], whose Resource is tokenKey. It makes one request, by the script's SHA, on a
// connection of the pool, or two if the server does not have the script yet. It makes none for a
// token of 0, or if tokenKey is one of keys. The reply is that of redigo, or nil if the script
// returns nothing.
//
// If the script fails, what it did before stays done, because Redis takes nothing back, and the
// token is raised. An empty script raises the token alone. A holder that reads before it writes
// raises the token first: then no earlier holder can change what it has read.
func (s *Script) Run(
	ctx context.Context, pool *redis.Pool, tokenKey string, token uint64, keys []string, args ...any,
) (any, error) {
	return s.run(ctx, pool, fencescript.Write{Package: name, Resource: tokenKey, TokenKey: tokenKey, Token: token}, keys, args)
}

func (s *Script) run(ctx context.Context, pool *redis.Pool, w fencescript.Write, keys []string, args []any) (any, error) {
	if err := cmp.Or(fence.Check(w.Resource, w.Token, 0), w.CheckKeys(keys)); err != nil {
		return nil, err
	}
	if ctx.Err() != nil { // which redigo looks at when the request is on its way
		return nil, w.Wrap(context.Cause(ctx))
	}
	conn, err := pool.GetContext(ctx)
	if err != nil {
		return nil, w.Wrap(err)
	}
	defer conn.Close() // gives it back
	all := []any{1 + len(keys), w.TokenKey}
	for _, key := range keys {
		all = append(all, key)
	}
	reply, err := s.script.DoContext(ctx, conn, append(all, fencescript.Args(w.Token, args)...)...)
	return reply, w.Explain(err)
}

var set = NewScript(fencescript.Set)

// Set sets key to value, under the conditions of [Script.Run]. The value expires after expiry; if
// that is 0, it never expires. The token is in [TokenKey] of key, and does not expire. The Resource
// of a refusal is key. value is anything that redigo takes as a value, and expiry is in whole
// milliseconds.
func Set(ctx context.Context, pool *redis.Pool, key string, token uint64, value any, expiry time.Duration) error {
	w, args, err := fencescript.OfSet(name, key, token, value, expiry)
	if err != nil {
		return err
	}
	_, err = set.run(ctx, pool, w, []string{key}, args)
	return err
}

// TokenKey returns a key for the token that guards key. It begins with "fence:". Two different keys
// never have the same token key. A key and its token key are on the same slot of a Redis Cluster,
// with one exception: if key has a '}' and no hash tag, the slots differ, and a Cluster refuses the
// write.
func TokenKey(key string) string { return fencescript.TokenKey(key) }
