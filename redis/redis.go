// Package redis keeps locks on a Redis server, through go-redis v9. It registers redis:// and,
// for TLS, rediss://.
//
//	client, err := locker.Open(ctx, "redis://user:password@localhost:6379/0?ttl=10s")
//
// or, with a client of the application's own, [New].
//
// # The URL
//
//	redis[s]://[[user]:password@][host[:port]][/database][?parameter=value&…]
//
// is localhost:6379, database 0, if it does not say otherwise. Beside the parameters that every backend
// has, see [locker.Open], it takes
//
//	dial_timeout, read_timeout, write_timeout   durations; the defaults are go-redis's 5s, 3s, 3s
//	pool_size                                   connections; the default is go-redis's 10 for each CPU
//	tls_ca, tls_cert, tls_key                   PEM files; with rediss:// alone
//	tls_server_name                             if the certificate is for another name than the host's
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
// It is tested on Redis 7. An ACL user needs ~{locker:* on the keys (or the prefix in place of locker),
// and the commands EVAL, EVALSHA, TIME, HMGET, HGET, HSET, HDEL, PTTL and PEXPIRE, and SELECT for a
// database other than 0.
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
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

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
	if v := reflect.ValueOf(rdb); rdb == nil || v.Kind() == reflect.Pointer && v.IsNil() {
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

// RunOnce has go-redis tell how often it has written the request, for it tries again by itself, and
// the last error says nothing of the tries before.
func (r runner) RunOnce(
	ctx context.Context, s *redisscript.Script, key string, args ...any,
) (reply any, mayHaveRun bool, err error) {
	counted := &countedArg{value: args[0]}
	args[0] = counted
	reply, err = r.rdb.EvalSha(ctx, s.SHA, []string{key}, args...).Result()
	if noScript(err) {
		counted.written.Add(-1) // that one has not run
		reply, err = r.rdb.Eval(ctx, s.Source, []string{key}, args...).Result()
	}
	if err == nil {
		return reply, false, nil
	}
	var answer goredis.Error
	n := counted.written.Load()
	return nil, n > 1 || n == 1 && !errors.As(err, &answer), err
}

// countedArg is an argument of a request that counts how often the request is written.
type countedArg struct {
	value   any
	written atomic.Int32
}

// MarshalBinary is called by go-redis each time that it writes the argument.
func (a *countedArg) MarshalBinary() ([]byte, error) {
	a.written.Add(1)
	return fmt.Append(nil, a.value), nil
}

// RunAll sends all in one pipeline. A server that has lost the script is given it with one of those
// that it refused, and then gets the others in a pipeline again.
func (r runner) RunAll(ctx context.Context, s *redisscript.Script, calls []redisscript.Call) []redisscript.Reply {
	replies := make([]redisscript.Reply, len(calls))
	pending := make([]int, len(calls))
	for i := range calls {
		pending[i] = i
	}
	for len(pending) > 0 {
		r.pipeline(ctx, s, calls, replies, pending)
		refused := slices.DeleteFunc(pending, func(i int) bool { return !noScript(replies[i].Err) })
		if len(refused) == 0 {
			break
		}
		first := refused[0]
		replies[first].Value, replies[first].Err = r.Run(ctx, s, calls[first].Key, calls[first].Args...)
		pending = refused[1:]
	}
	return replies
}

// pipeline sends the calls with the indices which, and files their replies.
func (r runner) pipeline(
	ctx context.Context, s *redisscript.Script, calls []redisscript.Call, replies []redisscript.Reply, which []int,
) {
	cmds := make([]*goredis.Cmd, len(which))
	// Each command has its own error.
	_, _ = r.rdb.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for i, call := range which {
			cmds[i] = p.EvalSha(ctx, s.SHA, []string{calls[call].Key}, calls[call].Args...)
		}
		return nil
	})
	for i, call := range which {
		replies[call].Value, replies[call].Err = cmds[i].Result()
	}
}

func noScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}
