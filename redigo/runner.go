package redigo

import (
	"cmp"
	"context"
	"encoding"
	"slices"
	"strings"
	"sync"

	"github.com/gomodule/redigo/redis"

	"github.com/go-locker/locker/internal/redisscript"
)

// runner runs scripts on the connections of a pool.
type runner struct {
	pool     *redis.Pool
	replicas redisscript.Replicas // N is 0 if nobody waits for any

	mu         sync.Mutex
	closed     bool
	connecting sync.WaitGroup
}

// Together returns true: it is of one server at a time.
func (r *runner) Together() bool { return true }

// Run sends all in one pipeline. A server that has lost a script gets it with the first call of it that it refused, and the
// others again behind that one.
func (r *runner) Run(ctx context.Context, calls []redisscript.Call, replies []redisscript.Reply) {
	b := &batch{calls: calls}
	for i, c := range calls {
		b.pending = append(b.pending, i)
		if c.Script.Grants {
			b.replicas = r.replicas
		}
	}
	mayHaveRun := false // some, in spite of their errors
	for ; len(b.pending) > 0; b.load = true {
		answers, lost, err := r.request(ctx, b)
		mayHaveRun = mayHaveRun || lost
		if err != nil {
			for _, i := range b.pending {
				replies[i].Err = err
			}
			break
		}
		mayHaveRun = b.file(answers, replies) || mayHaveRun
	}
	for i := range replies {
		replies[i].MayHaveRun = mayHaveRun && replies[i].Err != nil
	}
}

// batch is some calls.
type batch struct {
	calls    []redisscript.Call
	replicas redisscript.Replicas // N is 0 if nobody waits for any
	waits    redisscript.Replicas // what was asked of them last
	pending  []int                // those that have no reply yet
	load     bool                 // the server does not have the scripts of what is pending
}

// write returns the commands for what is pending.
func (b *batch) write(ctx context.Context) ([]command, error) {
	commands := make([]command, 0, len(b.pending)+1)
	var given []*redisscript.Script
	for _, i := range b.pending {
		s := b.calls[i].Script
		name, script := "EVALSHA", s.SHA
		if b.load && !slices.Contains(given, s) {
			name, script = "EVAL", s.Source
			given = append(given, s)
		}
		args, err := arguments(script, b.calls[i])
		if err != nil {
			return nil, err
		}
		commands = append(commands, command{name, args})
	}
	if b.replicas.N > 0 {
		b.waits = b.replicas.Within(ctx)
		commands = append(commands, command{"WAIT", []any{b.waits.N, b.waits.Timeout.Milliseconds()}})
	}
	return commands, nil
}

// answered tells the Counters of what is pending which of them have been refused.
func (b *batch) answered(answers []any) {
	for n, i := range b.pending[:min(len(b.pending), len(answers))] {
		if _, refused := answers[n].(redis.Error); !refused {
			continue
		}
		for _, arg := range b.calls[i].Args {
			if counts, ok := arg.(redisscript.Counter); ok {
				counts.NotRun()
			}
		}
	}
}

// arguments returns a script and what comes after it, as it is written this time.
func arguments(script any, call redisscript.Call) ([]any, error) {
	args := make([]any, 0, 2+len(call.Keys)+len(call.Args))
	args = append(args, script, len(call.Keys))
	args = append(args, call.Keys...)
	for _, arg := range call.Args {
		if m, ok := arg.(encoding.BinaryMarshaler); ok {
			data, err := m.MarshalBinary()
			if err != nil {
				return nil, err
			}
			arg = data
		}
		args = append(args, arg)
	}
	return args, nil
}

// file puts the answers to what was pending where they belong; what was refused for want of the script
// stays pending. file returns true if a grant is an error for want of replicas.
func (b *batch) file(answers []any, replies []redisscript.Reply) (granted bool) {
	var acknowledged int64
	var unheard error
	if b.replicas.N > 0 {
		acknowledged, unheard = redis.Int64(answers[len(b.pending)], nil)
	}
	refused := b.pending[:0]
	for n, i := range b.pending {
		answer := answers[n]
		if err, ok := answer.(redis.Error); ok {
			if strings.HasPrefix(string(err), "NOSCRIPT") {
				refused = append(refused, i)
				continue
			}
			replies[i].Err = err
			continue
		}
		if b.replicas.N > 0 && b.calls[i].Script.Grants {
			if err := b.waits.Check(answer, acknowledged); err != nil {
				granted = true
				replies[i].Err = cmp.Or(unheard, err)
				continue
			}
		}
		replies[i].Value = answer
	}
	b.pending = refused
	return granted
}
