package redigo

import (
	"cmp"
	"context"
	"encoding"
	"slices"

	"github.com/gomodule/redigo/redis"

	"github.com/go-locker/locker/internal/redisscript"
)

// runner runs scripts on the connections of a pool.
type runner struct {
	pool     *redis.Pool
	replicas redisscript.Replicas // N is 0 if nobody waits for any
}

// Together returns true: it is of one server at a time.
func (r *runner) Together() bool { return true }

// Run implements redisscript.Runner.
func (r *runner) Run(ctx context.Context, calls []redisscript.Call, replies []redisscript.Reply) {
	p := &pipeline{calls: calls}
	grants := func(c redisscript.Call) bool { return c.Script.Grants }
	if slices.ContainsFunc(calls, grants) {
		p.replicas = r.replicas
	}
	answers, lost, err := r.request(ctx, p)
	var acknowledged int64
	var unheard error
	if err == nil && p.replicas.N > 0 {
		acknowledged, unheard = redis.Int64(answers[len(calls)], nil)
	}
	for i := range replies {
		reply := &replies[i]
		if reply.Err = err; err == nil {
			reply.Value, reply.Err = result(answers[i])
		}
		if reply.Err == nil && p.replicas.N > 0 && grants(calls[i]) {
			reply.Err = cmp.Or(unheard, p.waits.Check(reply.Value, acknowledged))
			reply.Ran = reply.Err != nil
		}
		reply.MayHaveRun = reply.Err != nil && (lost || reply.Ran)
	}
}

// result returns the value of an answer, or its error.
func result(answer any) (any, error) {
	if err, ok := answer.(redis.Error); ok {
		return nil, err
	}
	return answer, nil
}

// pipeline is some calls, and a WAIT behind them if somebody waits for replicas.
type pipeline struct {
	calls    []redisscript.Call
	replicas redisscript.Replicas // N is 0 if nobody waits for any
	waits    redisscript.Replicas // what was asked of them last
}

// write returns the commands, as they are written this time.
func (p *pipeline) write(ctx context.Context) ([]command, error) {
	commands := make([]command, 0, len(p.calls)+1)
	for _, c := range p.calls {
		cmd := command{"EVALSHA", append(make([]any, 0, 2+len(c.Keys)+len(c.Args)), c.Script.SHA, len(c.Keys))}
		if c.Load {
			cmd.name, cmd.args[0] = "EVAL", c.Script.Source
		}
		cmd.args = append(cmd.args, c.Keys...)
		for _, arg := range c.Args {
			if m, ok := arg.(encoding.BinaryMarshaler); ok {
				data, err := m.MarshalBinary()
				if err != nil {
					return nil, err
				}
				arg = data
			}
			cmd.args = append(cmd.args, arg)
		}
		commands = append(commands, cmd)
	}
	if p.replicas.N > 0 {
		p.waits = p.replicas.Within(ctx)
		commands = append(commands, command{"WAIT", []any{p.waits.N, p.waits.Timeout.Milliseconds()}})
	}
	return commands, nil
}

// answered tells the Counters which calls have been refused.
func (p *pipeline) answered(answers []any) {
	for i, c := range p.calls[:min(len(p.calls), len(answers))] {
		if _, refused := result(answers[i]); refused == nil {
			continue
		}
		for _, arg := range c.Args {
			if counts, ok := arg.(redisscript.Counter); ok {
				counts.NotRun()
			}
		}
	}
}
