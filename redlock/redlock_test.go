package redlock

import (
	"context"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/fuzzurl"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/memory"
	_ "github.com/go-locker/locker/redigo"
	_ "github.com/go-locker/locker/redis"
)

func TestNewDriver_refuses(t *testing.T) {
	nodes := clientsOf(newStages(4))
	same := []driver.Driver{&stageClient{stage: &stage{addr: "H:1"}}, &stageClient{stage: &stage{addr: "h:1"}}}
	nameless := []driver.Driver{&stageClient{stage: &stage{}}, &stageClient{stage: &stage{}}, &stageClient{stage: &stage{}}}
	for _, c := range []struct {
		nodes []driver.Driver
		opts  []DriverOption
		want  string
	}{
		{nil, nil, "at least 3"},
		{nodes[:2], nil, "at least 3 nodes, and got 2"},
		{[]driver.Driver{nodes[0], nil, nodes[1]}, nil, "node 2 is nil"},
		{[]driver.Driver{nodes[0], nodes[1], nodes[0]}, nil, "nodes 1 and 3 are the same"},
		{[]driver.Driver{nodes[0], same[0], same[1]}, nil, "nodes 2 and 3 are the same, h:1"},
		{[]driver.Driver{nameless[0], nameless[1], nameless[0]}, nil, "nodes 1 and 3 are the same"},
		{[]driver.Driver{nodes[0], memory.NewDriver(), nodes[1]}, nil, "node 2, a *memory.backend, cannot be a node"},
		{nodes, []DriverOption{NodeTimeout(0)}, "above 0"},
		{nodes, []DriverOption{nil}, "nil DriverOption"},
	} {
		_, err := NewDriver(c.nodes, c.opts...)
		require.ErrorContains(t, err, c.want)
		var e *locker.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, "new", e.Op)
		_, err = New(c.nodes)
		assert.Equal(t, c.opts == nil, err != nil)
	}
	_, err := NewDriver([]driver.Driver{nodes[0], memory.NewDriver(), nodes[1]})
	require.ErrorIs(t, err, locker.ErrUnsupported)
	for _, good := range [][]driver.Driver{nodes[:3], nodes, {nameless[0], nameless[1], nameless[2]}} {
		_, err := NewDriver(good)
		require.NoError(t, err)
	}
}

// An application that would have the guarantee, and is told that there is none, may do without.
func TestNew_leavesTheNodesToTheCallerIfItFails(t *testing.T) {
	nodes := clientsOf(newStages(3))
	closed := func() (n int) {
		for _, node := range nodes {
			if node.(*stageClient).closed.Load() {
				n++
			}
		}
		return n
	}
	for _, refused := range []locker.Option{
		nil, locker.Require(locker.Exclusive), locker.WithTTL(5 * time.Millisecond), locker.Require("world peace"),
	} {
		_, err := New(nodes, refused)
		require.Error(t, err)
	}
	assert.Zero(t, closed())
	c, err := New(nodes)
	require.NoError(t, err)
	nodes[1].(*stageClient).closeErr = errRefused
	require.ErrorIs(t, c.Close(), errRefused)
	assert.Equal(t, 3, closed(), "whatever one of them says")
}

func TestCheckTTL(t *testing.T) {
	for _, c := range []struct {
		timeout, ttl time.Duration
		want         []string // in the error; none: it is honoured
	}{
		{0, 30 * time.Second, nil},
		{0, 10 * time.Millisecond, nil},
		{0, 7 * time.Millisecond, nil},
		{0, 5 * time.Millisecond, []string{"at least 7ms"}},
		{500 * time.Millisecond, 30 * time.Second, nil},
		{500 * time.Millisecond, 3500 * time.Millisecond, nil},
		{500 * time.Millisecond, 2990 * time.Millisecond, []string{"TTL 2.99s", "a renewal leaves a node 427.142857ms", "at least 3.501s", "below 427.143ms"}},
		{500 * time.Millisecond, 2040 * time.Millisecond, []string{"2 × 500ms", "TTL 2.04s", "leaves 1.0176s", "at least 3.501s", "below 291.429ms"}},
		{time.Second, time.Second, []string{"leaves -1.012s", "at least 7.001s"}},
		{1450 * time.Microsecond, 10 * time.Millisecond, []string{"leaves 5ms", "more than half"}},
		{time.Millisecond, 8 * time.Millisecond, []string{"2 × 1ms", "leaves 3.92ms", "at least 9ms"}},
	} {
		d := stageDriver(t, newStages(3))
		d.timeout = c.timeout
		err := d.CheckTTL(c.ttl)
		if c.want == nil {
			require.NoError(t, err, "%v of %v", c.timeout, c.ttl)
			continue
		}
		require.ErrorIs(t, err, locker.ErrUnsupported)
		for _, want := range c.want {
			require.ErrorContains(t, err, want)
		}
		_, advice, _ := strings.Cut(err.Error(), "use a TTL of at least ")
		longer, err := time.ParseDuration(strings.Split(advice, ",")[0])
		require.NoError(t, err)
		require.NoError(t, d.CheckTTL(longer))
	}
	d := stageDriver(t, newStages(3), NodeTimeout(time.Second))
	_, err := locker.New(d, locker.WithTTL(3*time.Second))
	require.ErrorIs(t, err, locker.ErrUnsupported, "a Client refuses it")
	require.ErrorContains(t, err, "2 × 1s")
}

// A node that its request reached late has the lock for a part of the TTL only. One that joins so
// during an Extend is asked to extend it.
func TestAcquire_countsNoMoreThanItsNodesHave(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		for _, s := range stages {
			s.short = 700 * time.Millisecond
		}
		l := taken(t, d, stages[2])
		assert.Equal(t, ttl-700*time.Millisecond, l.Validity())
		stages[1].always(path{err: errRefused})
		stages[0].always(path{back: 300 * time.Millisecond})
		require.NoError(t, l.Extend(t.Context(), ttl))
		assert.Equal(t, ttl-300*time.Millisecond, l.Validity(), "from before the request")
		assert.Equal(t, 1, stages[2].counted(extendIt))
		require.NoError(t, l.Release(t.Context()))
	})
}

func TestAcquire_withoutAMajorityFailsAsSoonAsThatIsKnown(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		stages[0].always(path{err: errRefused})
		stages[1].always(path{err: errRefused})
		stages[2].always(path{back: 400 * time.Millisecond})
		start := time.Now()
		l, err := claims.Take(t.Context(), d, askFor("x"))
		require.ErrorIs(t, err, errRefused)
		assert.Zero(t, time.Since(start))
		require.EqualError(t, err, "no majority of 3 nodes: a:1: connection refused; b:1: connection refused; c:1: has not answered yet")
		require.NoError(t, l.Release(t.Context()), "the third's answer is waited for")
		assert.Zero(t, holding(stages))
		synctest.Wait()
		assert.Equal(t, 1, stages[2].counted(releaseIt))
	})
}

func TestAcquire_givesUpWithItsContext(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		for i, s := range stages {
			s.only(propose, path{back: 400 * time.Millisecond})
			s.edit(func(r *register) {
				*r = register{known: true, last: uint64(time.Now().Add(time.Duration(i) * time.Hour).UnixMicro())}
			})
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		l, err := claims.Take(ctx, d, askFor("x"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.Equal(t, 100*time.Millisecond, time.Since(start))
		require.NoError(t, l.Release(t.Context()))
		synctest.Wait()
		assert.Zero(t, holding(stages))
		for _, s := range stages {
			assert.Zero(t, s.counted(raiseIt), "grants that come in later are not raised")
		}
	})
}

func TestAcquire_raisesToTheLargestToken(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
		for i, s := range stages {
			s.edit(func(r *register) { *r = register{known: true, last: ahead + uint64(10*i)} })
			s.always(path{back: time.Duration(i) * time.Millisecond})
		}
		l := taken(t, d)
		assert.Equal(t, ahead+11, l.Token(), "of the first two that answered")
		synctest.Wait()
		assert.Equal(t, []int{1, 0, 0}, []int{stages[0].counted(raiseIt), stages[1].counted(raiseIt), stages[2].counted(raiseIt)})
		time.Sleep(time.Second)
		// The third has a larger one. It counts for an extension, for who comes next gets a larger
		// one there.
		stages[0].always(path{err: errRefused})
		require.NoError(t, l.Extend(t.Context(), ttl))
		stages[0].on(nil)
		require.NoError(t, l.Release(t.Context()))
		next := taken(t, d)
		assert.Greater(t, next.Token(), l.Token())
		require.NoError(t, next.Release(t.Context()))
	})
}

// The attempt fails as soon as a node that was to be raised has failed.
func TestAcquire_whoseRaiseFailsTakesNothing(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		stages[0].edit(func(r *register) { *r = register{known: true, last: uint64(time.Now().Add(time.Hour).UnixMicro())} })
		stages[1].only(raiseIt, path{err: errRefused})
		stages[2].always(path{err: errRefused})
		start := time.Now()
		l, err := claims.Take(t.Context(), d, askFor("x"))
		require.ErrorIs(t, err, errRefused)
		require.NotErrorIs(t, err, locker.ErrHeld)
		assert.Zero(t, time.Since(start))
		require.NoError(t, l.Release(t.Context()))
		synctest.Wait()
		assert.Zero(t, holding(stages))
	})
}

func TestError_unwrapsToTheFailuresOfAnOutage(t *testing.T) {
	votes := []Vote{{"a:1", nil}, {"b:1", locker.ErrHeld}, {"c:1", locker.ErrLost}, {"d:1", errRefused}}
	e := &Error{Votes: votes}
	assert.Equal(t, []error{errRefused}, e.Unwrap())
	require.EqualError(t, e, "no majority of 4 nodes: a:1 agreed; b:1: held; c:1: lost; d:1: connection refused")
	e.held = true
	require.ErrorIs(t, e, locker.ErrHeld)
	require.NotErrorIs(t, e, errRefused)
	require.EqualError(t, e, "the lock is held by another owner: a:1 agreed; b:1: held; c:1: lost; d:1: connection refused")
}

// A client whose clock is wrong comes neither early nor late, once it knows the clocks of a
// majority.
func TestNextPlace_isTheMedianOfTheNodesClocks(t *testing.T) {
	play(t, 5, func(t *testing.T, d *backend, stages []*stage) {
		d.clock = func() time.Time { return time.Now().Add(time.Hour) }
		for known, ahead := range []time.Duration{time.Second, 2 * time.Second, 48 * time.Hour, -48 * time.Hour, time.Minute} {
			place := time.Until(time.UnixMicro(int64(d.nextPlace() >> 10))).Round(time.Millisecond)
			assert.Equal(t, []time.Duration{time.Hour, time.Hour, time.Hour, 2 * time.Second, 2 * time.Second}[known], place, "%d are known", known)
			stages[known].ahead, stages[known].tells = ahead, true
			_, err := d.nodes[known].Identify(t.Context())
			require.NoError(t, err)
		}
	})
}

// A node that does not say who it is in time has no vote until it does. If it is one that is there
// already, no lock is taken from then on.
func TestIdentify_aNodeThatDoesNotAnswerIsAskedBeforeItsVote(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		for _, s := range stages {
			s.tells = true
		}
		stages[2].id = stages[0].addr
		stages[2].always(hung)
		for _, takes := range []time.Duration{100 * time.Millisecond, 0, 0} {
			start := time.Now()
			ctx := t.Context()
			if takes == 100*time.Millisecond {
				ctx = testwait.Context(t, 3*takes)
			}
			l, err := claims.Take(ctx, d, askFor("x"))
			require.NoError(t, err)
			assert.Equal(t, takes, time.Since(start), "it is waited for once, and not for long if ctx ends soon")
			require.NoError(t, l.Extend(t.Context(), ttl))
			require.NoError(t, l.Release(t.Context()))
		}
		l := taken(t, d)
		time.Sleep(time.Second)
		stages[2].on(nil)
		require.NoError(t, l.Extend(t.Context(), ttl), "which asks it to join")
		synctest.Wait()
		for range 2 {
			_, err := claims.Take(t.Context(), d, askFor("y"))
			require.ErrorIs(t, err, driver.ErrUnsupported)
			require.EqualError(t, err, "not supported by the backend: the nodes a:1 and c:1 are one server: each node has to be a server of its own")
		}
		require.NoError(t, l.Extend(t.Context(), ttl), "a hold goes on")
		synctest.Wait()
		assert.Zero(t, stages[2].counted(propose))
		require.NoError(t, l.Release(t.Context()))
	})
}

// Where no majority has said who it is, all are asked again; and else none.
func TestIdentify_isDoneAgainAfterAnOutage(t *testing.T) {
	play(t, 3, func(t *testing.T, d *backend, stages []*stage) {
		d.clock = func() time.Time { return time.Now().Add(time.Hour) }
		for _, s := range stages {
			s.tells = true
		}
		always(stages[:2], path{err: errRefused})
		_, err := claims.Take(t.Context(), d, askFor("x"))
		require.ErrorIs(t, err, errRefused)
		setFaults(stages, "---")
		w := wait(t, d)
		require.NoError(t, w.err)
		assert.WithinDuration(t, time.Now(), time.UnixMicro(int64(w.lease.(*claim).waiting.place>>10)), time.Minute, "its place is by the nodes' clocks")
		w.leave()
		before := stages[0].counted(identifyIt)
		w = wait(t, d)
		w.leave()
		assert.Equal(t, before, stages[0].counted(identifyIt))
	})
}

// The third node cannot be made: the first two are nobody's then.
func TestOpen_closesItsNodesIfItFails(t *testing.T) {
	var nodes []*stageClient
	driver.Register("stage", func(context.Context, *driver.URL) (driver.Driver, error) {
		if len(nodes) == 2 {
			return nil, errRefused
		}
		nodes = append(nodes, newClient(newStages(len(nodes) + 1)[len(nodes)]))
		return nodes[len(nodes)-1], nil
	})
	u := &driver.URL{Scheme: "redlock", Hosts: []string{"a", "b", "c"}, Query: url.Values{"driver": {"stage"}}}
	_, err := open(t.Context(), u)
	require.ErrorIs(t, err, errRefused)
	require.Len(t, nodes, 2)
	for _, n := range nodes {
		assert.True(t, n.closed.Load(), n.addr)
	}
}

func FuzzOpen(f *testing.F) {
	fuzzurl.Run(f, "redlock", open,
		"h1,h2:1,[::1]:2/1?node_timeout=50ms&pool_size=3", "h1,h2,h1:6379?driver=redigo", "h1,h2,h3?driver=rediss&tls_skip_verify=true",
		"h1,h2,h3?cluster=true", "h1,h2,h3?driver=redlock", "h1,h2")
}
