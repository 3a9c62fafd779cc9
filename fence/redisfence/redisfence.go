// Package redisfence refuses writes to Redis, or Valkey, whose fencing token is stale, through
// go-redis v9. Package redigofence does the same through redigo; the two may be mixed.
//
//	err := redisfence.Set(ctx, rdb, "orders/42", m.FencingToken(), "paid", 0)
//
// and for everything else
//
//	var pay = redisfence.NewScript(`
//		redis.call('HSET', KEYS[1], 'state', 'paid', 'by', ARGV[1])
//		redis.call('ZREM', KEYS[2], KEYS[1])
//	`)
//	_, err := pay.Run(ctx, rdb, "{orders/42}:token", m.FencingToken(), []string{"{orders/42}", "{orders/42}:due"}, "me")
//
// The newest token is kept in a key of its own, on the server of what it guards, and compared by
// the script that writes. So a request that arrives late, or comes from a holder that was stopped
// for an hour, is checked when the server runs it, not when it was sent. The lock may be on Redis
// or anywhere else.
//
// The package uses scripts, not transactions with WATCH. A transaction with WATCH needs a
// connection to itself and three round trips, and begins anew whenever somebody else writes.
//
// # The token's key
//
// It holds the token in digits. If the key is missing, nobody has written to the resource yet. If
// it holds something else, each write is refused with fence.ErrUnknown. The key never expires,
// even if the data that it guards expires. It takes some hundred bytes for each resource, until
// somebody deletes it. One key may guard any number of others.
//
// In a Redis Cluster, and with a Ring, the keys of a write and the token's key need the same hash
// tag; [TokenKey] makes the token's key from the key of the data. A Cluster refuses keys of several
// slots before anything is done. A Ring does not notice, and asks the server of the token's key. If
// one client cannot reach that server, its Ring asks another one, which lets any token through. So
// do not use a Ring for a fence that has to hold.
//
// # What it is worth
//
// The fence holds as long as the server remembers the token. If the token's key is deleted, by
// eviction (maxmemory-policy allkeys-…; volatile-… spares it), FLUSHALL, or the restart of a server
// that does not persist, any token is let through, until the newest holder writes again.
//
// Replication is asynchronous. A failover to a replica that has not received the last writes loses
// them, and their tokens with them. Data and fence are then as before these writes, and a token
// that the lost writes had made stale is accepted again. A primary that has been replaced, and does
// not know it yet, compares with its own newest token. What it accepts is discarded when it finds
// out. If that is not good enough for a resource, use another database.
//
// # Replies that are lost
//
// If a reply was lost, go-redis sends the request again, unless MaxRetries is -1. The second
// request has the same token, so it is not stale, and the script runs twice. So use commands that
// may run twice, such as HSET, and not HINCRBY. If another holder has written between the two, the
// answer is a refusal, although the first request was done before the other holder's write.
//
// After any other error that does not come from the server, the write may have been made. It may
// also be made later, even after the next write of the same holder: a token orders holders, not the
// requests of one holder. If a holder gives up a write, and has to be sure that it is not done
// later, it takes the lock again, and goes on with the new token.
//
// # Contexts
//
// go-redis looks at ctx before it sends a request. While it waits for the reply, it heeds the
// deadline of ctx only if ContextTimeoutEnabled is set.
//
// # Rights
//
// An ACL user needs EVAL, EVALSHA, GET and SET, and the other commands of the script, on the keys
// of the write and of the token.
package redisfence

import (
	"context"
	"errors"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker/internal/fencescript"
)

// Script is a Lua script that runs if a token is not stale. It may be used by several goroutines.
type Script struct{ script *goredis.Script }

const name = "redisfence" // whose errors these are

// NewScript makes a Script of body, which finds its KEYS and ARGV as any script of Redis does, and
// returns its reply in the same way. It must not begin with a shebang. NewScript makes no request:
// the server reports errors in body when the Script runs.
func NewScript(body string) *Script {
	return &Script{goredis.NewScript(fencescript.Source(body))}
}

// Run runs the script on keys and args if token is above 0, and not below the token in tokenKey. In
// the same step it stores token in tokenKey. Otherwise it does nothing, and returns a
// *fence.StaleError, whose Resource is tokenKey. It makes one request, by the script's SHA, or
// two if the server does not have the script yet. It makes none for a token of 0, or if tokenKey is
// one of keys. The reply is that of [goredis.Cmd], or nil if the script returns nothing.
//
// If the script fails, what it did before stays done, because Redis takes nothing back, and the
// token is raised. An empty script raises the token alone. A holder that reads before it writes
// raises the token first: then no earlier holder can change what it has read.
func (s *Script) Run(
	ctx context.Context, rdb goredis.UniversalClient, tokenKey string, token uint64, keys []string, args ...any,
) (any, error) {
	w := fencescript.Write{Package: name, Resource: tokenKey, TokenKey: tokenKey, Token: token}
	return w.Run(ctx, keys, args, s.eval(ctx, rdb))
}

func (s *Script) eval(ctx context.Context, rdb goredis.UniversalClient) fencescript.Eval {
	return func(keys []string, args []any) (any, error) {
		reply, err := s.script.Run(ctx, rdb, keys, args...).Result()
		if errors.Is(err, goredis.Nil) {
			return nil, nil // go-redis's word for a script that has returned nothing
		}
		return reply, err
	}
}

var set = NewScript(fencescript.Set)

// Set sets key to value, under the conditions of [Script.Run]. The value expires after expiry; if
// that is 0, it never expires. The token is in [TokenKey] of key, and does not expire. The Resource
// of a refusal is key. value is anything that go-redis takes as a value, and expiry is in whole
// milliseconds.
func Set(ctx context.Context, rdb goredis.UniversalClient, key string, token uint64, value any, expiry time.Duration) error {
	return fencescript.RunSet(ctx, name, key, token, value, expiry, set.eval(ctx, rdb))
}

// TokenKey returns a key for the token that guards key. It begins with "fence:". Two different keys
// never have the same token key. A key and its token key are on the same slot of a Redis Cluster,
// with one exception: if key has a '}' and no hash tag, the slots differ, and a Cluster refuses the
// write.
func TokenKey(key string) string { return fencescript.TokenKey(key) }
