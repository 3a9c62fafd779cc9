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
	"context"
	"time"

	"github.com/gomodule/redigo/redis"

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

// Run runs the script on keys and args under the conditions of Run of package redisfence, on a
// connection of the pool. The reply is that of redigo, or nil if the script returns nothing.
func (s *Script) Run(
	ctx context.Context, pool *redis.Pool, tokenKey string, token uint64, keys []string, args ...any,
) (any, error) {
	w := fencescript.Write{Package: name, Resource: tokenKey, TokenKey: tokenKey, Token: token}
	return w.Run(ctx, keys, args, s.eval(ctx, pool))
}

func (s *Script) eval(ctx context.Context, pool *redis.Pool) fencescript.Eval {
	return func(keys []string, args []any) (any, error) {
		conn, err := pool.GetContext(ctx)
		if err != nil {
			return nil, err
		}
		defer conn.Close() // gives it back
		return s.script.DoContext(ctx, conn, redis.Args{len(keys)}.AddFlat(keys).AddFlat(args)...)
	}
}

var set = NewScript(fencescript.Set)

// Set sets key to value, under the conditions of [Script.Run]. The value expires after expiry; if
// that is 0, it never expires. The token is in [TokenKey] of key, and does not expire. The Resource
// of a refusal is key. value is anything that redigo takes as a value, and expiry is in whole
// milliseconds.
func Set(ctx context.Context, pool *redis.Pool, key string, token uint64, value any, expiry time.Duration) error {
	return fencescript.RunSet(ctx, name, key, token, value, expiry, set.eval(ctx, pool))
}

// TokenKey returns the key that TokenKey of package redisfence returns.
func TokenKey(key string) string { return fencescript.TokenKey(key) }
