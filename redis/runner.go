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

// request is a script to be put into a pipeline, or sent.
type request struct {
	name, script any // as the command takes them
	call         redisscript.Call
}

func bySHA(c redisscript.Call) request    { return request{"evalsha", c.Script.SHA, c} }
func bySource(c redisscript.Call) request { return request{"eval", c.Script.Source, c} }

// sent is a request that was put into a pipeline, or sent. Those of a pipeline are one piece of memory, with all that they
// need but the command.
type sent struct {
	cmd     *goredis.Cmd
	counts  bool
	counter counting
	args    [10]any // of the command that most requests are
}

// command makes a command as go-redis does, but that its Counters are told what the server has answered.
func (s *sent) command(ctx context.Context, q request) goredis.Cmder {
	args := append(s.args[:0], q.name, q.script, len(q.call.Keys))
	args = append(args, q.call.Keys...)
	for _, arg := range q.call.Args {
		if counts, ok := arg.(redisscript.Counter); ok {
			s.counts, s.counter.Counter = true, counts
			arg = &s.counter
		}
		args = append(args, arg)
	}
	s.cmd = goredis.NewCmd(ctx, args...)
	s.cmd.SetFirstKeyPos(3)
	if !s.counts {
		return s.cmd
	}
	s.counter.cmd = s.cmd
	return once{s.cmd}
}

// result returns what has become of it.
func (s *sent) result() (res result) {
	res.Value, res.Err = s.cmd.Result()
	if s.counts {
		s.counter.answered(res.Err)
	}
	return res
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

// Together returns false for clients of several servers, and for those that do not tell.
func (r *runner) Together() bool {
	_, one := r.rdb.(*goredis.Client)
	return one
}

// Run implements redisscript.Runner. go-redis sends a pipeline again by itself if its connection breaks, unless there is a
// Counter in it, or if the first of it is refused for a while; what else can be sent again then is.
func (r *runner) Run(ctx context.Context, calls []redisscript.Call, replies []redisscript.Reply) {
	var written []countedArg // in one piece of memory
	for i, c := range calls {
		if !c.Script.Takes {
			continue
		}
		if written == nil {
			written = make([]countedArg, len(calls)-i)
		}
		written[0].value = c.Args[0]
		c.Args[0], written = &written[0], written[1:]
	}
	if len(calls) == 1 {
		replies[0] = reply(calls[0], r.run(ctx, calls[0]))
		return
	}
	results := make([]result, len(calls))
	all := make([]int, len(calls))
	for i := range all {
		all[i] = i
	}
	r.runAll(ctx, calls, results, all)
	broken := slices.ContainsFunc(calls, counts)
	r.runAll(ctx, calls, results, slices.DeleteFunc(all, func(i int) bool {
		return counts(calls[i]) || !again(&calls[i], results[i], broken)
	}))
	for i, c := range calls {
		replies[i] = reply(c, results[i])
	}
}

// again reports whether c is to be sent again after res, of a pipeline: after a broken connection if broken is set.
func again(c *redisscript.Call, res result, broken bool) bool {
	switch {
	case res.Err == nil || res.ran:
		return false
	case !isAnswer(res.Err):
		return broken
	case isMisdirected(res.Err):
		withoutQueue(c, res.Err)
		notRun(*c)
		return true
	default:
		return false
	}
}

// withoutQueue leaves c the key of the lock alone, if err is that its queue is elsewhere, because their slot moves. The script knows
// the second by the first.
func withoutQueue(c *redisscript.Call, err error) bool {
	apart := c.Script.Queue && len(c.Keys) > 1 && err != nil && strings.HasPrefix(err.Error(), "TRYAGAIN")
	if apart {
		c.Keys = c.Keys[:1]
	}
	return apart
}

// counts reports whether c has a Counter.
func counts(c redisscript.Call) bool {
	return slices.ContainsFunc(c.Args, func(arg any) bool {
		_, ok := arg.(redisscript.Counter)
		return ok
	})
}

// reply has a script that Takes tell how often it was written: go-redis tries again by itself, and the last error
// says nothing of the tries before.
func reply(c redisscript.Call, res result) redisscript.Reply {
	if counted, ok := c.Args[0].(*countedArg); ok && res.Err != nil {
		n := counted.written.Load()
		res.MayHaveRun = res.ran || n > 1 || n == 1 && !isAnswer(res.Err)
	}
	return res.Reply
}

// run makes one call.
func (r *runner) run(ctx context.Context, c redisscript.Call) result {
	res := r.send(ctx, bySHA(c))
	if noScript(res.Err) {
		notRun(c)
		res = r.send(ctx, bySource(c))
	}
	if withoutQueue(&c, res.Err) {
		return r.run(ctx, c)
	}
	return res
}

// notRun takes back that the request was written: that one has not run.
func notRun(c redisscript.Call) {
	if counted, ok := c.Args[0].(*countedArg); ok {
		counted.written.Add(-1)
	}
}

func (r *runner) send(ctx context.Context, q request) result {
	done := r.cluster.watch()
	defer done()
	switch {
	case !r.awaited(q.call.Script):
		var s sent
		_ = r.rdb.Process(ctx, s.command(ctx, q))
		res := s.result()
		r.cluster.noticed(res.Err)
		return res
	case r.cluster != nil:
		return r.sendToPrimary(ctx, q)
	default:
		return r.sendAndWait(ctx, r.rdb, false, []request{q})[0]
	}
}

// countedArg is an argument of a request that counts how often the request is written.
type countedArg struct {
	value   any
	written atomic.Int32
	space   [64]byte // for most values
}

// MarshalBinary is called by go-redis each time that it writes the argument.
func (a *countedArg) MarshalBinary() ([]byte, error) {
	a.written.Add(1)
	return fmt.Append(a.space[:0], a.value), nil
}

// runAll makes the calls with the indices pending in one pipeline, and files their results. A server that has lost a script is
// given it with one of those that it refused, and then gets the others in a pipeline again.
func (r *runner) runAll(ctx context.Context, calls []redisscript.Call, results []result, pending []int) {
	for len(pending) > 0 {
		r.pipeline(ctx, calls, results, pending)
		refused := slices.DeleteFunc(slices.Clone(pending), func(i int) bool { return !noScript(results[i].Err) })
		if len(refused) == 0 {
			return
		}
		for _, i := range refused {
			notRun(calls[i])
		}
		results[refused[0]] = r.run(ctx, calls[refused[0]])
		pending = refused[1:]
	}
}

// pipeline sends the calls with the indices which, and files their results.
func (r *runner) pipeline(ctx context.Context, calls []redisscript.Call, results []result, which []int) {
	done := r.cluster.watch()
	defer done()
	requests := make([]request, len(which))
	awaited := false
	for i, call := range which {
		requests[i] = bySHA(calls[call])
		awaited = awaited || r.awaited(calls[call].Script)
	}
	var got []result
	switch {
	case !awaited:
		got = sendAll(ctx, r.rdb, false, requests)
	case r.cluster != nil:
		got = r.sendToPrimaries(ctx, requests)
	default:
		got = r.sendAndWait(ctx, r.rdb, false, requests)
	}
	for i, call := range which {
		results[call] = got[i]
		r.cluster.noticed(got[i].Err)
	}
}

// pipelined is a client of one server or of several.
type pipelined interface {
	Pipelined(ctx context.Context, f func(goredis.Pipeliner) error) ([]goredis.Cmder, error)
}

// sendAll sends requests, and what more there is behind them, in one pipeline. Asking is for a node that is about to get the
// slot of the one request.
func sendAll(ctx context.Context, rdb pipelined, asking bool, requests []request, more ...goredis.Cmder) []result {
	all := make([]sent, len(requests))
	// Each command has its own error.
	_, _ = rdb.Pipelined(ctx, func(p goredis.Pipeliner) error {
		if asking {
			_ = p.Process(ctx, goredis.NewCmd(ctx, "asking"))
		}
		for i, q := range requests {
			_ = p.Process(ctx, all[i].command(ctx, q))
		}
		return p.BatchProcess(ctx, more...)
	})
	results := make([]result, len(requests))
	for i := range all {
		results[i] = all[i].result()
	}
	return results
}

func noScript(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT")
}
