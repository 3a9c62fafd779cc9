// Package redis keeps locks on a Redis server, through go-redis v9. It registers redis:// and,
// for TLS, rediss://.
//
//	client, err := locker.Open(ctx, "redis://user:password@localhost:6379/0?ttl=10s")
//
// or, with a client of the application's own, [New].
//
// # The protocol
//
// A lock is one hash, and each operation one script: taking it is one round trip, giving it back
// another. The owner is 128 random bits, fresh for every attempt, and compared in the same step
// that releases or extends. The TTL is set in the step that takes the lock. See the Redis
// documentation, "Distributed Locks with Redis", for the pattern, and [locker.Locker] for the
// contract. The fencing token is the larger of the server's clock, in microseconds, and the last token
// plus 1. The last token is kept for a day after the lock has lapsed; what is lost with the data is
// made good by the clock.
//
// Redis 5 is the oldest server that will do. An ACL user needs ~{prefix:* on the keys, and the commands
// EVAL, EVALSHA, TIME, HMGET, HGET, HSET, HDEL, DEL, PTTL and PEXPIRE.
//
// # What it is worth
//
// One server, and sane clocks: one holder, tokens that rise. Replication is asynchronous: after
// a failover, or a restart that forgot, two may hold, and the later one has the larger token.
// Waiters poll, see [locker.WithBackoff].
//
// # Time-outs
//
// Lock, Unlock and Extend return when their context ends, also on a client that does not heed
// it. Such a client's connection stays busy until its ReadTimeout (3 s by default);
// ContextTimeoutEnabled, which Open sets, frees it at TTL/2 at the latest.
package redis

import (
	"context"
	"errors"
	"net"
	"reflect"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/redisscript"
)

// New makes a Client over rdb, which stays the caller's: Close does not close it. It makes no request.
func New(rdb goredis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
	d, err := NewDriver(rdb)
	if err != nil {
		return nil, err
	}
	return locker.New(d, opts...)
}

// Driver implements [locker.Driver], [locker.BatchExtender], [locker.Proposer] and
// [locker.TTLChecker].
type Driver struct {
	*redisscript.Driver
	rdb   goredis.UniversalClient
	owned bool // made by Open, and closed by Close
}

var (
	_ locker.BatchExtender = (*Driver)(nil)
	_ locker.Proposer      = (*Driver)(nil)
	_ locker.TTLChecker    = (*Driver)(nil)
)

// NewDriver makes a Driver over rdb, which stays the caller's.
func NewDriver(rdb goredis.UniversalClient) (*Driver, error) {
	if rdb == nil || reflect.ValueOf(rdb).IsNil() {
		return nil, &locker.Error{Op: "new", Err: errors.New("nil redis client")}
	}
	return &Driver{Driver: redisscript.NewDriver(runner{rdb}), rdb: rdb}, nil
}

// Close closes the go-redis client if Open made it.
func (d *Driver) Close() error {
	if !d.owned {
		return nil
	}
	return d.rdb.Close()
}

// Address is the server's host:port, and empty where the client talks to several.
func (d *Driver) Address() string {
	if c, ok := d.rdb.(*goredis.Client); ok {
		return c.Options().Addr
	}
	return ""
}

// runner runs scripts through go-redis.
type runner struct{ rdb goredis.UniversalClient }

func (r runner) Run(ctx context.Context, s *redisscript.Script, key string, args ...any) (any, error) {
	reply, err := r.rdb.EvalSha(ctx, s.SHA, []string{key}, args...).Result()
	if noScript(err) {
		reply, err = r.rdb.Eval(ctx, s.Source, []string{key}, args...).Result()
	}
	return reply, err
}

// RunAll sends all in one pipeline; a server that has lost the script gets those that it
// refused one by one.
func (r runner) RunAll(ctx context.Context, s *redisscript.Script, calls []redisscript.Call) []redisscript.Reply {
	replies := make([]redisscript.Reply, len(calls))
	cmds := make([]*goredis.Cmd, len(calls))
	// Each command has its own error.
	_, _ = r.rdb.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for i, c := range calls {
			cmds[i] = p.EvalSha(ctx, s.SHA, []string{c.Key}, c.Args...)
		}
		return nil
	})
	for i, cmd := range cmds {
		replies[i].Value, replies[i].Err = cmd.Result()
		if noScript(replies[i].Err) {
			replies[i].Value, replies[i].Err = r.Run(ctx, s, calls[i].Key, calls[i].Args...)
		}
	}
	return replies
}

func noScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}

// NotRun is true of what the server answered, and of requests that never had a connection.
func (r runner) NotRun(err error) bool {
	var answer goredis.Error
	var dial *net.OpError
	return errors.As(err, &answer) ||
		errors.As(err, &dial) && dial.Op == "dial" ||
		errors.Is(err, goredis.ErrPoolTimeout) ||
		errors.Is(err, goredis.ErrClosed)
}
