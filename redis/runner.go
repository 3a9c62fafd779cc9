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
type runner struct {
	rdb      goredis.UniversalClient
	cluster  *cluster             // nil if rdb is no ClusterClient
	replicas redisscript.Replicas // N is 0 if no grant has to be acknowledged
}

func newRunner(rdb goredis.UniversalClient) *runner {
	r := &runner{rdb: rdb}
	if c, ok := rdb.(*goredis.ClusterClient); ok {
		r.cluster = &cluster{ClusterClient: c}
	}
	return r
}

// result is what became of one request.
type result struct {
	redisscript.Reply
	ran bool // Err is not the script's own: too few replicas have acknowledged what it did
}

// request puts a script into a pipeline, or sends it.
type request func(to processor) *goredis.Cmd

// processor is a client or a pipeline.
type processor interface {
	Process(ctx context.Context, cmd goredis.Cmder) error
}

func bySHA(ctx context.Context, s *redisscript.Script, c redisscript.Call) request {
	return script(ctx, c, "evalsha", s.SHA)
}

func bySource(ctx context.Context, s *redisscript.Script, c redisscript.Call) request {
	return script(ctx, c, "eval", s.Source)
}

// script makes a command as go-redis does, but that its Counters are told what the server has answered.
func script(ctx context.Context, c redisscript.Call, name, script string) request {
	return func(to processor) *goredis.Cmd {
		args := make([]any, 3, 3+len(c.Keys)+len(c.Args))
		args[0], args[1], args[2] = name, script, len(c.Keys)
		for _, key := range c.Keys {
			args = append(args, key)
		}
		var counter *counting
		for _, arg := range c.Args {
			if counts, ok := arg.(redisscript.Counter); ok {
				counter = &counting{Counter: counts}
				arg = counter
			}
			args = append(args, arg)
		}
		cmd := goredis.NewCmd(ctx, args...)
		cmd.SetFirstKeyPos(3)
		if counter == nil {
			_ = to.Process(ctx, cmd)
			return cmd
		}
		counter.cmd = cmd
		counter.answered(to.Process(ctx, once{cmd}))
		return cmd
	}
}

// once is a command that go-redis does not send to one server again by itself, for it does not tell why it does.
// The core sends a release again.
type once struct{ *goredis.Cmd }

func (once) NoRetry() bool { return true }

// counting is an argument that counts how often it is written and not answered. A ClusterClient, which
// sends commands on, leaves in them what the last node said.
type counting struct {
	redisscript.Counter
	cmd *goredis.Cmd
}

// MarshalBinary is called by go-redis each time that it writes the argument.
func (c *counting) MarshalBinary() ([]byte, error) {
	c.answered(c.cmd.Err())
	return c.Counter.MarshalBinary()
}

// answered takes a write back that the server has answered with an error: nothing has been done.
func (c *counting) answered(err error) {
	if isAnswer(err) {
		c.NotRun()
	}
}

func isAnswer(err error) bool {
	if err == nil {
		return false // what follows allocates
	}
	var answer goredis.Error
	return errors.As(err, &answer)
}

// HeedsDeadlines is false for clients without ContextTimeoutEnabled, and for those that do not tell.
func (r *runner) HeedsDeadlines() bool {
	switch rdb := r.rdb.(type) {
	case *goredis.Client:
		return rdb.Options().ContextTimeoutEnabled
	case *goredis.ClusterClient:
		// To find a command's routing policy it asks for COMMAND, on a context of its own.
		return rdb.Options().ContextTimeoutEnabled && rdb.Options().DisableRoutingPolicies
	case *goredis.Ring:
		return rdb.Options().ContextTimeoutEnabled
	default:
		return false
	}
}

func (r *runner) Run(ctx context.Context, s *redisscript.Script, keys []string, args ...any) (any, error) {
	res := r.run(ctx, s, redisscript.Call{Keys: keys, Args: args})
	return res.Value, res.Err
}

// RunOnce has go-redis tell how often it has written the request, for it tries again by itself, and
// the last error says nothing of the tries before.
func (r *runner) RunOnce(
	ctx context.Context, s *redisscript.Script, keys []string, args ...any,
) (reply any, mayHaveRun bool, err error) {
	counted := &countedArg{value: args[0]}
	args[0] = counted
	res := r.run(ctx, s, redisscript.Call{Keys: keys, Args: args})
	if res.Err == nil {
		return res.Value, false, nil
	}
	n := counted.written.Load()
	return nil, res.ran || n > 1 || n == 1 && !isAnswer(res.Err), res.Err
}

func (r *runner) run(ctx context.Context, s *redisscript.Script, c redisscript.Call) result {
	res := r.send(ctx, s, c.Keys[0], bySHA(ctx, s, c))
	if noScript(res.Err) {
		if counted, ok := c.Args[0].(*countedArg); ok {
			counted.written.Add(-1) // that one has not run
		}
		res = r.send(ctx, s, c.Keys[0], bySource(ctx, s, c))
	}
	if len(c.Keys) > 1 && res.Err != nil && strings.HasPrefix(res.Err.Error(), "TRYAGAIN") {
		// Their slot moves, and not both are where the first is. The script knows the second by the first.
		c.Keys = c.Keys[:1]
		return r.run(ctx, s, c)
	}
	return res
}

func (r *runner) send(ctx context.Context, s *redisscript.Script, key string, req request) result {
	done := r.cluster.watch()
	defer done()
	switch {
	case !r.awaited(s):
		var res result
		res.Value, res.Err = req(r.rdb).Result()
		r.cluster.noticed(res.Err)
		return res
	case r.cluster != nil:
		return r.sendToPrimary(ctx, key, req)
	default:
		return r.sendAndWait(ctx, r.rdb, false, []request{req})[0]
	}
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
func (r *runner) RunAll(ctx context.Context, s *redisscript.Script, calls []redisscript.Call) []redisscript.Reply {
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
func (r *runner) pipeline(
	ctx context.Context, s *redisscript.Script, calls []redisscript.Call, replies []redisscript.Reply, which []int,
) {
	done := r.cluster.watch()
	defer done()
	requests := make([]request, len(which))
	for i, call := range which {
		requests[i] = bySHA(ctx, s, calls[call])
	}
	var results []result
	switch {
	case !r.awaited(s):
		results = sendAll(ctx, r.rdb, requests)
	case r.cluster != nil:
		keys := make([]string, len(which))
		for i, call := range which {
			keys[i] = calls[call].Keys[0]
		}
		results = r.sendToPrimaries(ctx, keys, requests)
	default:
		results = r.sendAndWait(ctx, r.rdb, false, requests)
	}
	for i, call := range which {
		replies[call] = results[i].Reply
		r.cluster.noticed(results[i].Err)
	}
}

// pipelined is a client of one server or of several.
type pipelined interface {
	Pipelined(ctx context.Context, f func(goredis.Pipeliner) error) ([]goredis.Cmder, error)
}

// sendAll sends requests, and what more there is behind them, in one pipeline.
func sendAll(ctx context.Context, rdb pipelined, requests []request, more ...goredis.Cmder) []result {
	cmds := make([]*goredis.Cmd, len(requests))
	// Each command has its own error.
	_, _ = rdb.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for i, req := range requests {
			cmds[i] = req(p)
		}
		return p.BatchProcess(ctx, more...)
	})
	results := make([]result, len(requests))
	for i, cmd := range cmds {
		results[i].Value, results[i].Err = cmd.Result()
	}
	return results
}

func noScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}
