// Package redisfence refuses writes to Redis, or Valkey, whose fencing token is stale, through go-redis v9. Package
// redigofence does the same through redigo; the two may be mixed.
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
// The newest token is kept in a key of its own, on the server of what it guards, and compared by the script that
// writes. So a request that arrives late, or comes from a holder that was stopped for an hour, is judged when it is
// done, and not when it was sent. The lock may be on Redis or anywhere else.
//
// It takes scripts, and not transactions with WATCH: those need a connection to themselves and three round trips, and
// begin anew whenever somebody else writes.
//
// # The token's key
//
// It holds the token in digits. A key that is not there stands for a resource that nobody has written to; one that
// holds something else has each write refused with [fence.ErrUnknown]. It has no expiry, also where what it guards has one:
// some hundred bytes a resource, for as long as nobody deletes it. One key may guard any number of others.
//
// In a Redis Cluster, and with a Ring, the keys of a write and the token's need the same hash tag; [TokenKey] makes a
// key for the token from that of the data. A Cluster refuses keys of several slots before anything is done. A Ring does
// not notice, and asks the server of the token's key; while one client alone cannot reach that, its Ring asks another one, where
// any token is let through. A Ring is no place for a fence that has to hold.
//
// # What it is worth
//
// As much as the server remembers. If the token's key is deleted, be it by eviction (maxmemory-policy allkeys-…;
// volatile-… spares it), FLUSHALL, or the restart of a server that does not persist, any token is let through, until
// the newest holder writes again.
//
// Replication is asynchronous. A failover to a replica that has not received the last writes loses them, and their
// tokens with them: data and fence are both what they were before, and a token between the two is not stale any more.
// A primary that has been replaced and does not know it judges by its own newest token, and what it accepts is discarded
// when it finds out. A resource for which that is not good enough wants another database.
//
// # Replies that are lost
//
// go-redis sends a request again whose reply was lost, unless MaxRetries is -1. The token is then equal, and the script
// runs twice: let it be one that may, such as HSET, and unlike HINCRBY. If another holder has written between the two, the
// answer is a refusal though the first was done, before the other's write.
//
// After any other error that is not the server's the write may have been made, or be made later, even after the next one
// of the same holder: a token orders holders, and not the requests of one. A holder that gives up a write, and has to be sure
// that it does not come last, goes on with a lock taken anew.
//
// # Contexts
//
// They are heeded as far as the client does it: go-redis looks at ctx before it sends, and at its deadline while it
// waits for the reply if ContextTimeoutEnabled is set.
//
// # Rights
//
// An ACL user needs EVAL, EVALSHA, GET and SET, and what the script calls besides, on the keys of the write and of the
// token.
package redisfence

import (
	"cmp"
	"context"
	"errors"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker/fence"
	"github.com/go-locker/locker/internal/fencescript"
)

// Script is a Lua script that runs if a token is not stale. It may be used by several goroutines.
type Script struct{ script *goredis.Script }

const name = "redisfence" // whose errors these are

// NewScript makes a Script of body, which finds its KEYS and ARGV as any script of Redis does, and returns its reply in
// the same way. It must not begin with a shebang. It makes no request: what is wrong with body the server says when it runs.
func NewScript(body string) *Script {
	return &Script{goredis.NewScript(fencescript.Source(body))}
}

// Run runs the script on keys and args if token is not 0 and not below the one in tokenKey, which then becomes token;
// otherwise it does nothing and returns a [*fence.StaleError], whose Resource is tokenKey. It is one request, by the
// script's SHA, or two if the server does not have it yet; for a token of 0, and where tokenKey is one of keys, it is
// none. The reply is as [goredis.Cmd] has it, and nil where the script returns nothing.
//
// If the script fails, what it did before stays done, for Redis takes nothing back, and the token is raised. An empty
// script raises the token alone. A holder that reads before it writes does that first: from then on what it has read
// stays as it is.
func (s *Script) Run(
	ctx context.Context, rdb goredis.UniversalClient, tokenKey string, token uint64, keys []string, args ...any,
) (any, error) {
	return s.run(ctx, rdb, fencescript.Write{Package: name, Resource: tokenKey, TokenKey: tokenKey, Token: token}, keys, args)
}

func (s *Script) run(ctx context.Context, rdb goredis.UniversalClient, w fencescript.Write, keys []string, args []any) (any, error) {
	if err := cmp.Or(fence.Check(w.Resource, w.Token, 0), w.CheckKeys(keys)); err != nil {
		return nil, err
	}
	keys = append([]string{w.TokenKey}, keys...)
	reply, err := s.script.Run(ctx, rdb, keys, fencescript.Args(w.Token, args)...).Result()
	if errors.Is(err, goredis.Nil) {
		return nil, nil // go-redis's word for a script that has returned nothing
	}
	return reply, w.Explain(err)
}

var set = NewScript(fencescript.Set)

// Set sets key to value, for expiry, or for ever if that is 0, under the conditions of [Script.Run]. The token is in
// [TokenKey] of key, and does not expire. The Resource of a refusal is key. value is what go-redis takes for one, and expiry is
// in whole milliseconds.
func Set(ctx context.Context, rdb goredis.UniversalClient, key string, token uint64, value any, expiry time.Duration) error {
	w, args, err := fencescript.OfSet(name, key, token, value, expiry)
	if err != nil {
		return err
	}
	_, err = set.run(ctx, rdb, w, []string{key}, args)
	return err
}

// TokenKey returns a key for the token that guards key, on the same slot of a Redis Cluster. It begins with "fence:", and no
// two keys have the same. That of a key with a '}' and no hash tag is on another slot, which a Cluster refuses.
func TokenKey(key string) string { return fencescript.TokenKey(key) }
