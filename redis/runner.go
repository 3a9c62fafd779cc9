package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker/internal/redisscript"
)

// runner runs scripts through go-redis.
type runner struct{ rdb goredis.UniversalClient }

func (r runner) Run(ctx context.Context, s *redisscript.Script, keys []string, args ...any) (any, error) {
	reply, err := r.rdb.EvalSha(ctx, s.SHA, keys, args...).Result()
	if noScript(err) {
		reply, err = r.rdb.Eval(ctx, s.Source, keys, args...).Result()
	}
	return reply, err
}

// HeedsDeadlines is false for clients without ContextTimeoutEnabled, and for those that do not tell.
func (r runner) HeedsDeadlines() bool {
	switch rdb := r.rdb.(type) {
	case *goredis.Client:
		return rdb.Options().ContextTimeoutEnabled
	case *goredis.ClusterClient:
		return rdb.Options().ContextTimeoutEnabled
	case *goredis.Ring:
		return rdb.Options().ContextTimeoutEnabled
	default:
		return false
	}
}

// RunOnce has go-redis tell how often it has written the request, for it tries again by itself, and
// the last error says nothing of the tries before.
func (r runner) RunOnce(
	ctx context.Context, s *redisscript.Script, keys []string, args ...any,
) (reply any, mayHaveRun bool, err error) {
	counted := &countedArg{value: args[0]}
	args[0] = counted
	reply, err = r.rdb.EvalSha(ctx, s.SHA, keys, args...).Result()
	if noScript(err) {
		counted.written.Add(-1) // that one has not run
		reply, err = r.rdb.Eval(ctx, s.Source, keys, args...).Result()
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
		replies[first].Value, replies[first].Err = r.Run(ctx, s, calls[first].Keys, calls[first].Args...)
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
			cmds[i] = p.EvalSha(ctx, s.SHA, calls[call].Keys, calls[call].Args...)
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
