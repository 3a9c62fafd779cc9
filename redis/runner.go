package redis

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker/internal/redisscript"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/redisscript/send"
)

// runner runs scripts through go-redis.
type runner struct {
	rdb      goredis.UniversalClient
	cluster  *cluster // nil if rdb is no ClusterClient
	spare    spare
	replicas script.Replicas // N is 0 if no grant has to be acknowledged
}

func newRunner(rdb goredis.UniversalClient) *runner {
	r := &runner{rdb: rdb}
	if c, ok := rdb.(*goredis.ClusterClient); ok {
		r.cluster = &cluster{ClusterClient: c}
	}
	return r
}

// AtOnce returns 0 for clients of several servers, and for those that do not tell.
func (r *runner) AtOnce() int {
	if one, ok := r.rdb.(*goredis.Client); ok {
		return min(send.MostAtOnce, one.Options().PoolSize)
	}
	return 0
}

// HeedsDeadlines reports whether the client has ContextTimeoutEnabled.
func (r *runner) HeedsDeadlines() bool {
	_, heeds, _ := timeouts(r.rdb)
	return heeds
}

// Silent implements send.Runner.
func (r *runner) Silent() { r.spare.onSilence() }

// timeouts returns the options of a Client or a ClusterClient; false of any other client.
func timeouts(rdb goredis.UniversalClient) (read time.Duration, heedsContexts, known bool) {
	switch rdb := rdb.(type) {
	case *goredis.Client:
		return rdb.Options().ReadTimeout, rdb.Options().ContextTimeoutEnabled, true
	case *goredis.ClusterClient:
		return rdb.Options().ReadTimeout, rdb.Options().ContextTimeoutEnabled, true
	default:
		return 0, false, false
	}
}

// Run implements script.Runner. go-redis sends a call again by itself if its connection
// breaks, or if it is refused for a while. It does not if the call, or another one in its pipeline,
// has a Counter; nor what is refused in a pipeline, but the first.
func (r *runner) Run(ctx context.Context, calls []script.Call, replies []script.Reply) {
	done := r.cluster.watch()
	defer done()
	rdb := r.spare.pick(ctx, r.rdb, calls)
	switch {
	case r.replicas.Awaited(calls) && r.cluster != nil:
		c := r.cluster
		if rdb != r.rdb {
			c = &cluster{ClusterClient: rdb.(*goredis.ClusterClient)}
		}
		r.sendToPrimaries(ctx, c, calls, replies)
	case r.replicas.Awaited(calls):
		r.sendAndWait(ctx, rdb, false, calls, replies)
	case len(calls) == 1:
		var s sent
		_ = rdb.Process(ctx, s.command(ctx, calls[0]))
		replies[0] = s.reply()
	default:
		sendAll(ctx, rdb, false, calls, replies)
	}
	counted := slices.ContainsFunc(calls, counts)
	for i := range replies {
		err := replies[i].Err
		r.cluster.noticed(err)
		replies[i].Again = err != nil && !replies[i].Ran && len(calls) > 1 && !counts(calls[i]) &&
			(isMisdirected(err) || counted && !isAnswer(err))
	}
}

// counts reports whether c has a Counter.
func counts(c script.Call) bool {
	return slices.ContainsFunc(c.Args, func(arg any) bool {
		_, ok := arg.(script.Counter)
		return ok
	})
}

// sent is a call that was put into a pipeline, or sent. Those of a pipeline are one piece of
// memory, with all that most of them need but the command.
type sent struct {
	cmd     goredis.Cmd
	counter counting // of a call that has a Counter
	taken   written  // of one that Takes
	takes   bool
	args    [10]any // of the command that most calls are
}

// command makes a command as go-redis does, which also passes the server's reply to its Counters.
func (s *sent) command(ctx context.Context, c script.Call) goredis.Cmder {
	args := c.Command(s.args[:0])
	own := args[len(args)-len(c.Args):]
	for i, arg := range own {
		if counter, ok := arg.(script.Counter); ok {
			s.counter.Counter = counter
			own[i] = &s.counter
		} else if i == 0 && c.Script.Takes {
			s.taken.value, s.takes = arg.(string), true
			own[i] = &s.taken
		}
	}
	s.cmd = *goredis.NewCmd(ctx, args...)
	s.cmd.SetFirstKeyPos(3)
	if s.counter.Counter == nil {
		return &s.cmd
	}
	s.counter.cmd = &s.cmd
	return once{&s.cmd}
}

// reply returns what has become of it. A script that Takes tells how often it was written: the last
// error says nothing of the tries before.
func (s *sent) reply() (r script.Reply) {
	r.Value, r.Err = s.cmd.Result()
	if s.counter.Counter != nil {
		s.counter.answered(r.Err)
	}
	if s.takes && r.Err != nil {
		n := s.taken.times.Load()
		r.MayHaveRun = n > 1 || n == 1 && !isAnswer(r.Err)
	}
	return r
}

// once is a command that go-redis does not send to one server again by itself, for it does not tell
// why it does. The core sends a release again.
type once struct{ *goredis.Cmd }

func (once) NoRetry() bool { return true }

// counting is an argument that counts how often it is written and not answered. A ClusterClient,
// which sends commands on, leaves in them what the last node said.
type counting struct {
	script.Counter
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

// written is an argument that counts how often it is written.
type written struct {
	value string
	times atomic.Int32
	space [48]byte // for most values
}

// MarshalBinary is called by go-redis each time that it writes the argument.
func (w *written) MarshalBinary() ([]byte, error) {
	w.times.Add(1)
	return append(w.space[:0], w.value...), nil
}

// pipelined is a client of one server or of several.
type pipelined interface {
	Pipelined(ctx context.Context, f func(goredis.Pipeliner) error) ([]goredis.Cmder, error)
}

// sendAll sends calls, and what more there is behind them, in one pipeline. With asking it is to a
// node that is about to get their slots.
func sendAll(ctx context.Context, rdb pipelined, asking bool, calls []script.Call, replies []script.Reply, more ...goredis.Cmder) {
	all := make([]sent, len(calls))
	// Each command has its own error.
	_, _ = rdb.Pipelined(ctx, func(p goredis.Pipeliner) error {
		for i, c := range calls {
			if asking {
				_ = p.Process(ctx, goredis.NewCmd(ctx, "asking"))
			}
			_ = p.Process(ctx, all[i].command(ctx, c))
		}
		return p.BatchProcess(ctx, more...)
	})
	for i := range all {
		replies[i] = all[i].reply()
	}
}

// Scans implements redisscript.Runner: of the server, each primary of a Cluster, or each shard of a
// Ring that is up.
func (r *runner) Scans(ctx context.Context) (scans []redisscript.Scan, err error) {
	var servers []*goredis.Client
	var mu sync.Mutex
	add := func(_ context.Context, server *goredis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		servers = append(servers, server)
		return nil
	}
	switch rdb := r.rdb.(type) {
	case *goredis.ClusterClient:
		err = rdb.ForEachMaster(ctx, add)
	case *goredis.Ring:
		err = rdb.ForEachShard(ctx, add)
	default:
		return []redisscript.Scan{scanOf(rdb)}, nil
	}
	slices.SortFunc(servers, func(a, b *goredis.Client) int { return strings.Compare(a.Options().Addr, b.Options().Addr) })
	for _, server := range servers {
		scans = append(scans, scanOf(server))
	}
	return scans, err
}

func scanOf(server goredis.Cmdable) redisscript.Scan {
	return func(ctx context.Context, cursor uint64, match string) ([]string, uint64, error) {
		return server.Scan(ctx, cursor, match, redisscript.ScanCount).Result()
	}
}
