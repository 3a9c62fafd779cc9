package redigo

import (
	"context"

	"github.com/gomodule/redigo/redis"

	"github.com/go-locker/locker/internal/redisscript"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/redisscript/send"
)

// runner runs scripts on the connections of a pool.
type runner struct {
	pool     *redis.Pool
	replicas script.Replicas // N is 0 if nobody waits for any
	owned    bool            // the pool was made by Open, and is closed by Close
}

// AtOnce implements send.Runner. A pool may be allowed a single connection.
func (r *runner) AtOnce() int {
	if r.pool.MaxActive == 1 {
		return 1
	}
	return send.MostAtOnce
}

// HeedsDeadlines implements send.Runner: a dial or a test that knows no context may take
// longer.
func (r *runner) HeedsDeadlines() bool {
	return r.pool.DialContext != nil && r.pool.TestOnBorrow == nil
}

// Silent implements send.Runner: a request without an answer takes the idle connections with it. A
// pool that tests them finds out by itself.
func (r *runner) Silent() {
	if r.pool.TestOnBorrow != nil {
		return
	}
	soon, cancel := context.WithTimeout(context.Background(), pause) // somebody may have taken them
	defer cancel()
	for range r.pool.IdleCount() {
		if c, err := r.pool.GetContext(soon); err == nil {
			abort(c)
			_ = c.Close()
		}
	}
}

// Run implements script.Runner.
func (r *runner) Run(ctx context.Context, calls []script.Call, replies []script.Reply) {
	p := &pipeline{calls: calls}
	if r.replicas.Awaited(calls) {
		p.replicas = r.replicas
	}
	answers, lost, err := r.request(ctx, p)
	for i := range replies {
		reply := &replies[i]
		if reply.Err = err; err == nil {
			reply.Value, reply.Err = result(answers[i])
		}
		reply.MayHaveRun = reply.Err != nil && lost
	}
	if err == nil && p.replicas.N > 0 {
		acknowledged, unheard := redis.Int64(answers[len(calls)], nil)
		p.waits.Acknowledged(calls, replies, acknowledged, unheard)
	}
}

// result returns the value of an answer, or its error.
func result(answer any) (any, error) {
	if err, ok := answer.(redis.Error); ok {
		return nil, err
	}
	return answer, nil
}

// pipeline is some calls, and a WAIT behind them if somebody waits for replicas; or one SCAN.
type pipeline struct {
	scan     redis.Args
	calls    []script.Call
	replicas script.Replicas // N is 0 if nobody waits for any
	waits    script.Replicas // what was asked of them last
	args     [10]any         // of a command, as most calls are
	conn     redis.Conn      // that it is sent on
	answer   [1]any          // to a single call
}

// command returns the command that is a call. The next overwrites its arguments.
func (p *pipeline) command(call script.Call) (name string, args []any) {
	words := call.Command(p.args[:0])
	return words[0].(string), words[1:]
}

// send writes the commands for c to send.
func (p *pipeline) send(ctx context.Context, c redis.Conn) error {
	if p.scan != nil {
		return c.Send("SCAN", p.scan...)
	}
	for _, call := range p.calls {
		name, args := p.command(call)
		if err := c.Send(name, args...); err != nil {
			return err
		}
	}
	if p.replicas.N == 0 {
		return nil
	}
	p.waits = p.replicas.Within(ctx)
	return c.Send("WAIT", p.waits.N, p.waits.Timeout.Milliseconds())
}

// answered tells the Counters which calls have been refused.
func (p *pipeline) answered(answers []any) {
	for i, c := range p.calls[:min(len(p.calls), len(answers))] {
		if _, refused := result(answers[i]); refused == nil {
			continue
		}
		for _, arg := range c.Args {
			if counts, ok := arg.(script.Counter); ok {
				counts.NotRun()
			}
		}
	}
}

// Scans implements redisscript.Runner.
func (r *runner) Scans(context.Context) ([]redisscript.Scan, error) {
	return []redisscript.Scan{r.scan}, nil
}

func (r *runner) scan(ctx context.Context, cursor uint64, match string) (keys []string, next uint64, err error) {
	answers, _, err := r.request(ctx, &pipeline{scan: redis.Args{cursor, "MATCH", match, "COUNT", redisscript.ScanCount}})
	if err != nil {
		return nil, 0, err
	}
	reply, err := redis.Values(answers[0], nil)
	if err == nil {
		_, err = redis.Scan(reply, &next, &keys)
	}
	return keys, next, err
}
