package redis

import (
	"context"
	"crypto/sha1"
	"encoding"
	"encoding/hex"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/test/testserver"
)

// oneServer makes a runner, and a client that looks at what it has done.
func oneServer(t *testing.T, s *testserver.RedisServer, addr string) (*runner, *goredis.Client) {
	t.Helper()
	rdb, look := goredis.NewClient(&goredis.Options{Addr: addr}), goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = errors.Join(rdb.Close(), look.Close()) })
	return newRunner(rdb), look
}

// made are the replies to calls.
func made(t *testing.T, r *runner, calls []script.Call) []script.Reply {
	t.Helper()
	replies := make([]script.Reply, len(calls))
	script.Run(t.Context(), r, calls, replies)
	return replies
}

// taking is a call that counts at key how often it has run.
func taking(key string) script.Call {
	const source = `redis.call('INCR', KEYS[1]) return 1`
	sum := sha1.Sum([]byte(source))
	s := &script.Script{Source: source, SHA: hex.EncodeToString(sum[:]), Takes: true, Grants: true}
	return script.Call{Script: s, Keys: []any{key}, Args: []any{"owner"}}
}

// counted is such a call with a Counter, which does not take.
func counted(key string) (script.Call, *counter) {
	c, n := taking(key), &counter{}
	c.Script.Takes = false
	c.Args = append(c.Args, n)
	return c, n
}

type counter struct{ n int }

func (c *counter) MarshalBinary() ([]byte, error) {
	c.n++
	return strconv.AppendInt(nil, int64(c.n), 10), nil
}
func (*counter) RedisArg() any { panic("it is for redigo") }
func (c *counter) NotRun()     { c.n-- }

// When the connection of a batch breaks go-redis sends nothing of it again, for there is a Counter in it. A take is.
func TestRun_whatABatchHasLostIsSentAgainUnlessItCounts(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	p := testserver.NewProxy(t, s.Addr())
	r, look := oneServer(t, s, p.Addr())
	for _, reply := range made(t, r, []script.Call{taking("other"), taking("other")}) {
		require.NoError(t, reply.Err, "there is a connection")
	}
	p.HoldRequests(true)
	release, count := counted("released")
	replies := make(chan []script.Reply, 1)
	go func() { replies <- made(t, r, []script.Call{taking("taken"), release}) }()
	require.Eventually(t, func() bool { requests, _ := p.Held(); return requests > 0 }, soon, time.Millisecond)
	p.HoldRequests(false)
	p.ResetConns()
	got := <-replies
	require.NoError(t, got[0].Err)
	assert.EqualValues(t, 1, got[0].Value)
	require.Error(t, got[1].Err, "the core sends it again")
	assert.Equal(t, 1, count.n)
	assert.Equal(t, "1", look.Get(t.Context(), "taken").Val())
	assert.Zero(t, look.Exists(t.Context(), "released").Val())
}

// What has run is not sent again, though it is an error.
func TestRun_aGrantThatNoReplicaHasRunsOnce(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	r, look := oneServer(t, s, s.Addr())
	r.replicas = script.Replicas{N: 1, Timeout: time.Millisecond}
	require.NoError(t, look.ScriptLoad(t.Context(), taking("").Script.Source).Err())
	release, _ := counted("released")
	release.Script.Grants = false
	got := made(t, r, []script.Call{taking("taken"), release})
	require.ErrorContains(t, got[0].Err, "replicas")
	assert.True(t, got[0].MayHaveRun)
	require.NoError(t, got[1].Err, "it grants nothing")
	assert.Equal(t, "1", look.Get(t.Context(), "taken").Val())
}

// A request that a server without the script has refused has not run, and leaves nothing to clean up.
func TestRun_whatIsRefusedHasNotRun(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	r, look := oneServer(t, s, s.Addr())
	calls := func() []script.Call {
		release, _ := counted("y")
		return []script.Call{taking("x"), taking("x"), release, taking("x")}
	}
	require.NoError(t, look.SAdd(t.Context(), "x", "no number").Err())
	for _, loaded := range []bool{false, true} {
		for i, reply := range made(t, r, calls()) {
			if i == 2 {
				require.NoError(t, reply.Err)
				continue
			}
			require.ErrorContains(t, reply.Err, "WRONGTYPE", "loaded: %v", loaded)
			assert.False(t, reply.MayHaveRun, "call %d, loaded: %v", i, loaded)
		}
	}
	assert.Equal(t, "2", look.Get(t.Context(), "y").Val())
	release, count := counted("x")
	require.Error(t, made(t, r, []script.Call{taking("z"), release})[1].Err)
	assert.Zero(t, count.n, "taken back")

	s.Kill()
	gone, _ := oneServer(t, s, s.Addr())
	reply := made(t, gone, []script.Call{taking("x")})[0]
	require.Error(t, reply.Err)
	assert.False(t, reply.MayHaveRun, "it never had a connection")
}

// The reply to the first try is lost, and the second is refused, or finds nobody to ask: that says
// nothing of the first.
func TestRun_whatWasSentTwiceMayHaveRunThoughItIsRefused(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	p := testserver.NewProxy(t, s.Addr())
	r, look := oneServer(t, s, p.Addr())
	for _, want := range []string{"WRONGTYPE", "refused"} {
		require.NoError(t, made(t, r, []script.Call{taking("other")})[0].Err, "there is a connection")
		p.HoldReplies(true)
		replies := make(chan []script.Reply, 1)
		go func() { replies <- made(t, r, []script.Call{taking(want)}) }()
		require.Eventually(t, func() bool { return look.Exists(t.Context(), want).Val() == 1 }, soon, time.Millisecond)
		if want == "refused" {
			p.Refuse()
		} else {
			require.NoError(t, look.Del(t.Context(), want).Err())
			require.NoError(t, look.SAdd(t.Context(), want, "no number").Err())
		}
		p.HoldReplies(false)
		p.ResetConns()
		reply := (<-replies)[0]
		require.ErrorContains(t, reply.Err, want)
		assert.True(t, reply.MayHaveRun)
	}
}

// busy is a hook that answers each request of a pipeline but the first with an error, once for each of its errors. It notes how
// many requests each pipeline had, and how many keys those had that it let through.
type busy struct {
	errors []error
	sizes  []int
	keys   []any
}

func (b *busy) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []goredis.Cmder) error {
		if cmds[0].Name() != "evalsha" {
			return next(ctx, cmds) // which sets up a connection
		}
		b.sizes = append(b.sizes, len(cmds))
		if len(b.errors) == 0 {
			for _, cmd := range cmds {
				b.keys = append(b.keys, cmd.Args()[2])
			}
			return next(ctx, cmds)
		}
		err := b.errors[0]
		b.errors = b.errors[1:]
		if got := next(ctx, cmds[:1]); got != nil {
			return got
		}
		for _, cmd := range cmds[1:] {
			for _, arg := range cmd.Args() {
				if m, ok := arg.(encoding.BinaryMarshaler); ok {
					_, _ = m.MarshalBinary() // it is written
				}
			}
			cmd.SetErr(err)
		}
		return nil
	}
}

func (b *busy) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (b *busy) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook { return next }

// redisError is what go-redis takes for the answer of a server.
type redisError string

func (e redisError) Error() string { return string(e) }
func (redisError) RedisError()     {}

// A server that refuses a request for a while is asked again, without the releases, which the core repeats. Any other refusal is its
// caller's alone, whatever its words.
func TestRun_whatIsRefusedForAWhileIsSentAgain(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	for answer, again := range map[string]bool{
		"LOADING Redis is loading the dataset in memory":            true,
		"READONLY You can't write against a read only replica.":     true,
		"TRYAGAIN Multiple keys request during rehashing of slot":   true,
		"ERR a backend of the proxy does not answer":                false,
		"-BUSY words that no Redis says: backend connection failed": false,
	} {
		r, look := oneServer(t, s, s.Addr())
		require.NoError(t, look.FlushDB(t.Context()).Err())
		require.NoError(t, look.ScriptLoad(t.Context(), taking("").Script.Source).Err())
		hook := &busy{errors: []error{redisError(answer)}}
		r.rdb.AddHook(hook)
		queued := taking("{queued}")
		queued.Script.Queue = true
		queued.Keys = append(queued.Keys, "{queued}:queue")
		release, count := counted("released")
		got := made(t, r, []script.Call{taking("first"), queued, release, taking("last")})
		require.NoError(t, got[0].Err, answer)
		assert.Equal(t, "1", look.Get(t.Context(), "first").Val(), "%s: it ran once", answer)
		require.ErrorContains(t, got[2].Err, answer)
		assert.Zero(t, count.n, answer)
		for _, i := range []int{1, 3} {
			if !again {
				require.ErrorContains(t, got[i].Err, answer)
				assert.False(t, got[i].MayHaveRun)
				continue
			}
			require.NoError(t, got[i].Err, answer)
			assert.EqualValues(t, 1, got[i].Value)
		}
		if !again {
			assert.Equal(t, []int{4}, hook.sizes)
			continue
		}
		assert.Equal(t, []int{4, 2}, hook.sizes)
		withQueue := 2
		if answer[:3] == "TRY" {
			withQueue = 1
		}
		assert.Equal(t, []any{withQueue, 1}, hook.keys, answer)
	}
}

// A ClusterClient leaves in a command that it sends on what the last node said.
func TestRun_whatIsSentOnHasNotRun(t *testing.T) {
	t.Parallel()
	call, count := counted("x")
	var s sent
	cmd := s.command(t.Context(), call)
	for range 3 {
		_, err := s.counter.MarshalBinary()
		require.NoError(t, err)
		assert.Equal(t, 1, count.n)
		cmd.SetErr(redisError("MOVED 1 localhost:1"))
	}
}

// clusterOf is a Cluster of one server, and counts how often the client looks at its nodes.
func clusterOf(addr string, o goredis.ClusterOptions) (rdb *goredis.ClusterClient, looks *atomic.Int32) {
	looks = new(atomic.Int32)
	o.ClusterSlots = func(context.Context) ([]goredis.ClusterSlot, error) {
		looks.Add(1)
		return []goredis.ClusterSlot{{End: 16383, Nodes: []goredis.ClusterNode{{Addr: addr}}}}, nil
	}
	return goredis.NewClusterClient(&o), looks
}

// Pipelines of go-redis have a pool of their own by default: that of the spare client would come on
// top of its connections.
func TestSpare_hasAFewConnectionsAlsoForPipelines(t *testing.T) {
	t.Parallel()
	_, look := oneServer(t, testserver.Redis(t), "")
	addr := look.Options().Addr
	one := goredis.NewClient(&goredis.Options{Addr: addr, PoolSize: 1, MinIdleConns: 1, MaxActiveConns: 1, ClientName: "mine"})
	several, _ := clusterOf(addr, goredis.ClusterOptions{PoolSize: 1, MinIdleConns: 1, MaxActiveConns: 1, ClientName: "mine"})
	node, err := several.MasterForKey(t.Context(), "x")
	require.NoError(t, err)
	for rdb, pool := range map[goredis.UniversalClient]*goredis.Client{one: one, several: node} {
		application := pool.Conn()
		require.NoError(t, application.Ping(t.Context()).Err())
		r := newRunner(rdb)
		client := r.spare.pick(t.Context(), rdb, []script.Call{taking("x")})
		require.NotSame(t, rdb, client)
		require.Same(t, client, r.spare.pick(t.Context(), rdb, []script.Call{taking("x")}))
		assert.True(t, newRunner(client).HeedsDeadlines())
		assert.False(t, r.HeedsDeadlines(), "the caller's goroutine would wait for the ReadTimeout")
		var waiting sync.WaitGroup
		for range 2 * spareConns {
			waiting.Go(func() {
				_, _ = client.Pipelined(t.Context(), func(p goredis.Pipeliner) error { return p.Do(t.Context(), "wait", 1, 100).Err() })
			})
		}
		waiting.Wait()
		all, err := look.ClientList(t.Context()).Result()
		require.NoError(t, err)
		assert.Equal(t, spareConns+1, strings.Count(all, " name=mine "), "the application's beside them:\n%s", all)
		r.spare.close()
		require.NoError(t, errors.Join(application.Close(), rdb.Close()))
		require.Same(t, rdb, r.spare.pick(t.Context(), rdb, nil), "no other is made any more")
	}
}

// A time-out of the spare client does not keep it in use.
func TestSpare_isUsedForAMinuteAfterASilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb := goredis.NewClient(&goredis.Options{Addr: "127.0.0.1:1"})
		r := newRunner(rdb)
		for range 2 {
			require.Same(t, rdb, r.spare.pick(t.Context(), rdb, nil))
			r.Silent()
			time.Sleep(afterSilence - time.Second)
			require.NotSame(t, rdb, r.spare.pick(t.Context(), rdb, nil))
			r.Silent()
			time.Sleep(time.Second)
		}
		r.spare.close()
		require.NoError(t, rdb.Close())
	})
}

// The node that a request hangs on may have been replaced. go-redis would find out within a minute.
func TestRun_theClusterIsLookedAtEachSecondWhileARequestHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rdb, looks := clusterOf("127.0.0.1:1", goredis.ClusterOptions{
			ContextTimeoutEnabled: true, ReadTimeout: -1,
			Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() },
		})
		defer func() { _ = rdb.Close() }()
		r := newRunner(rdb)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan []script.Reply)
		go func() {
			replies := make([]script.Reply, 1)
			r.Run(ctx, []script.Call{taking("x")}, replies)
			done <- replies
		}()
		for n := range int32(3) {
			synctest.Wait()
			require.Equal(t, 1+n, looks.Load(), "after %d s", n)
			time.Sleep(time.Second)
		}
		cancel()
		require.ErrorIs(t, (<-done)[0].Err, context.Canceled)
		synctest.Wait()
		before := looks.Load()
		time.Sleep(time.Minute)
		assert.Equal(t, before, looks.Load(), "nothing is in flight")
	})
}
