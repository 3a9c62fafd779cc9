package redisscript

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// apartOf are the calls that c is made of, or c itself.
func apartOf(t testing.TB, c Call) []Call {
	if c.Script != many {
		return []Call{c}
	}
	counts := strings.Fields(written(t, c.Args[1]))
	keys, args := c.Keys, c.Args[2:]
	var calls []Call
	for _, letter := range c.Args[0].(string) {
		one := Call{}
		takes := map[rune][2]int{'a': {2, 5}, 'e': {1, 2}, 'r': {2, 2}}[letter]
		one.Keys, keys = keys[:takes[0]], keys[takes[0]:]
		one.Args, args = args[:takes[1]:takes[1]], args[takes[1]:]
		switch letter {
		case 'a':
			one.Script = acquire
		case 'e':
			one.Script = extend
		case 'r':
			one.Script = release
			one.Args, counts = append(one.Args, counts[0]), counts[1:]
		}
		calls = append(calls, one)
	}
	assert.Empty(t, keys)
	assert.Empty(t, args)
	return calls
}

// written is an argument as a client library writes it.
func written(t testing.TB, arg any) string {
	if m, ok := arg.(releases); ok {
		text, err := m.MarshalBinary()
		require.NoError(t, err)
		return string(text)
	}
	return fmt.Sprint(arg)
}

// texts are keys as go-redis's Eval takes them.
func texts(keys []any) []string {
	all := make([]string, len(keys))
	for i, key := range keys {
		all[i] = key.(string)
	}
	return all
}

// evals runs scripts by their sources, each by itself.
type evals struct {
	puppet

	t    *testing.T
	rdb  *goredis.Client
	runs int
}

func (e *evals) Acknowledged() bool { return false }

func (e *evals) Run(ctx context.Context, calls []Call, replies []Reply) {
	for i, c := range calls {
		e.runs++
		args := make([]any, len(c.Args))
		for j, arg := range c.Args {
			args[j] = written(e.t, arg)
			if s, ok := arg.(*sendings); ok {
				text, err := s.MarshalBinary()
				require.NoError(e.t, err)
				args[j] = string(text)
			}
		}
		replies[i].Value, replies[i].Err = e.rdb.Eval(ctx, c.Script.Source, texts(c.Keys), args...).Result()
	}
}

// What calls come to is the same one by one and as one.
func TestBatch_isWhatItsCallsAre(t *testing.T) {
	s := newAtServer(t)
	e := &evals{t: t, rdb: s.rdb}
	d := NewDriver(e)
	defer func() { require.NoError(t, d.Close(noClient)) }()
	outcome := func(together bool, name string, calls ...func(keys []any) Call) (all []string) {
		keys := keys(name)
		var some []Call
		for _, c := range calls {
			some = append(some, c(keys))
		}
		var replies []Reply
		before := e.runs
		if together {
			replies = made(d.runAll, some)
			t.Log(e.runs-before, "scripts for", len(some), "calls")
		} else {
			for _, c := range some {
				replies = append(replies, made(d.runAll, []Call{c})...)
			}
		}
		for i, r := range replies {
			switch {
			case r.Err != nil:
				all = append(all, strings.ReplaceAll(r.Err.Error()[:9], name, ""))
			case some[i].Script != acquire:
				all = append(all, fmt.Sprint(r.Value))
			default:
				a, err := parseAnswer(r.Value)
				require.NoError(t, err)
				all = append(all, fmt.Sprintf("%d, place: %v", a.status, a.place > 0))
			}
		}
		return append(all, fmt.Sprint(s.rdb.HGet(t.Context(), keys[0].(string), "owner"), s.rdb.ZRange(t.Context(), keys[1].(string), 0, -1))[len(name):])
	}
	take := func(owner string, place int) func([]any) Call {
		return func(keys []any) Call {
			return Call{acquire, keys, []any{owner, expiry(ttl), place, int64(0), "who"}}
		}
	}
	prolong := func(owner string) func([]any) Call {
		return func(keys []any) Call { return Call{extend, keys[:1], []any{expiry(ttl), owner}} }
	}
	give := func(owner string, token int, sentBefore int64) func([]any) Call {
		return func(keys []any) Call {
			var count sendings
			count.n.Store(sentBefore)
			return Call{release, keys, []any{owner, token, &count}}
		}
	}
	for what, calls := range map[string][]func([]any) Call{
		"pairs":             {take("one", 0), give("one", 1, 0), take("two", 0), give("two", 1, 0)},
		"a queue":           {take("one", 0), take("-P/2", 0), take("-P/3", 0), give("one", 1, 0), take("-P/2", 1)},
		"who has it":        {take("one", 0), take("other", 0), prolong("one"), prolong("other"), give("other", 1, 0)},
		"sent again":        {take("one", 50), take("one", 50), give("one", 50, 0), give("one", 50, 0), give("one", 50, 1)},
		"nothing there":     {prolong("one"), give("one", 1, 0), give("one", 0, 3), give("-P/2", 0, 0)},
		"many of each":      {give("a", 9, 1), take("a", 0), prolong("a"), give("a", 9, 2), take("b", 0), prolong("b"), give("b", 9, 7)},
		"two, of which one": {take("one", 0), take("two", 0)},
	} {
		one := outcome(false, "{one "+what+"}", calls...)
		all := outcome(true, "{all "+what+"}", calls...)
		for i := range one[:len(calls)] {
			assert.Equal(t, one[i], all[i], "%s: call %d", what, i)
		}
		_, endOne, _ := strings.Cut(one[len(calls)], "owner")
		_, endAll, _ := strings.Cut(all[len(calls)], "owner")
		assert.Equal(t, strings.ReplaceAll(endOne, "one "+what, ""), strings.ReplaceAll(endAll, "all "+what, ""), what)
	}
}

// An error of one is its own, also if the script ends with it; the others are not made again.
func TestBatch_anErrorIsThatOfItsCall(t *testing.T) {
	s := newAtServer(t)
	e := &evals{t: t, rdb: s.rdb}
	d := NewDriver(e)
	defer func() { require.NoError(t, d.Close(noClient)) }()
	require.NoError(t, s.rdb.Set(t.Context(), Key("bad"), "no hash", 0).Err())
	take := func(name string) Call {
		return Call{acquire, keys(name), []any{"owner", expiry(ttl), 0, int64(0), ""}}
	}
	count, countBad := new(sendings), new(sendings)
	beyond := take("z") // which the script itself refuses
	require.NoError(t, s.rdb.HSet(t.Context(), Key("z"), "token", int64(1)<<53-1).Err())
	replies := made(d.runAll, []Call{
		take("x"), take("bad"), take("y"),
		{release, keys("x"), []any{"owner", 7, count}},
		{release, keys("bad"), []any{"owner", 7, countBad}},
		beyond,
	})
	for _, i := range []int{0, 2} {
		a, err := parseAnswer(replies[i].Value)
		require.NoError(t, errors.Join(err, replies[i].Err))
		assert.EqualValues(t, granted, a.status)
	}
	require.ErrorContains(t, replies[1].Err, "WRONGTYPE")
	require.ErrorContains(t, replies[4].Err, "WRONGTYPE")
	require.ErrorContains(t, replies[5].Err, "2^53")
	assert.EqualValues(t, 1, replies[3].Value)
	assert.EqualValues(t, 1, count.n.Load())
	assert.EqualValues(t, 1, countBad.n.Load(), "the first has done nothing")
	assert.Equal(t, 4, e.runs, "all, and those with an error by themselves")
}

// answering makes what the test says of each script that is run.
type answering struct {
	puppet

	answer func(c Call) Reply
	runs   [][]Call
	awaits bool
}

func (a *answering) Acknowledged() bool { return a.awaits }

func (a *answering) Run(_ context.Context, calls []Call, replies []Reply) {
	a.runs = append(a.runs, calls)
	for i, c := range calls {
		replies[i] = a.answer(c)
	}
}

func ofEach() []Call {
	return []Call{
		{acquire, keys("x"), []any{"owner", int64(1), 0, int64(0), ""}},
		{extend, keys("y")[:1], []any{int64(1), "owner"}},
		{release, keys("z"), []any{"owner", 7, new(sendings)}},
	}
}

// What a server has refused as a whole it may not refuse one by one.
func TestBatch_whatIsRefusedIsMadeOneByOne(t *testing.T) {
	for answer, apart := range map[string]bool{
		"CROSSSLOT Keys in request don't hash to the same slot": true,
		"NOPERM No permissions to access a key":                 true,
		"LOADING Redis is loading the dataset in memory":        false, // which is so for each
	} {
		a := &answering{answer: func(c Call) Reply {
			if c.Script == many {
				return Reply{Err: errors.New(answer), Refused: true}
			}
			return Reply{Value: int64(1)}
		}}
		d := NewDriver(a)
		for range 2 {
			for _, r := range made(d.runAll, ofEach()) {
				if !apart {
					require.ErrorContains(t, r.Err, answer)
					assert.False(t, r.MayHaveRun)
					continue
				}
				require.NoError(t, r.Err)
				assert.EqualValues(t, 1, r.Value)
			}
		}
		want := 2
		if apart {
			want = 3 // the second time they are not tried as one
		}
		assert.Len(t, a.runs, want, answer)
		require.NoError(t, d.Close(noClient))
	}
}

// A reply that is lost says nothing of any call. The core sends a release again, a take is sent again here.
func TestBatch_aReplyThatIsLost(t *testing.T) {
	lost := errors.New("lost")
	for _, c := range []struct {
		calls       []Call
		runs, again int
	}{
		{ofEach(), 2, 2},
		{ofEach()[:2], 1, 0}, // by the client library, if it wants to
	} {
		works := true
		a := &answering{answer: func(c Call) Reply {
			if c.Script == many || !works {
				return Reply{Err: lost, MayHaveRun: c.Script == many}
			}
			return Reply{Value: int64(1)}
		}}
		d := NewDriver(a)
		for _, works = range []bool{true, false} {
			a.runs = nil
			for i, r := range made(d.runAll, c.calls) {
				if works && i < c.again {
					require.NoError(t, r.Err)
					assert.False(t, r.MayHaveRun)
					continue
				}
				require.ErrorIs(t, r.Err, lost)
				assert.Equal(t, i == 0, r.MayHaveRun, "call %d: the take may have run, whatever its second error says", i)
			}
			require.Len(t, a.runs, c.runs)
			assert.Len(t, a.runs[len(a.runs)-1], max(c.again, 1))
		}
		require.NoError(t, d.Close(noClient))
	}
}

func TestBatch_anUnexpectedReply(t *testing.T) {
	for _, reply := range []any{nil, int64(1), "text", []any{int64(1)}, []any{int64(1), int64(1), int64(1)}, []any{}} {
		a := &answering{answer: func(Call) Reply { return Reply{Value: reply} }}
		d := NewDriver(a)
		for i, r := range made(d.runAll, ofEach()[:2]) {
			require.ErrorContains(t, r.Err, "unexpected reply")
			assert.Equal(t, i == 0, r.MayHaveRun)
		}
		require.NoError(t, d.Close(noClient))
	}
}

// What has to be acknowledged shares no script: a grant that too few replicas have would be everybody's error.
func TestBatch_notWhereReplicasAcknowledge(t *testing.T) {
	a := &answering{answer: func(Call) Reply { return Reply{Value: int64(1)} }, awaits: true}
	d := NewDriver(a)
	made(d.runAll, ofEach())
	require.Len(t, a.runs, 1)
	assert.Len(t, a.runs[0], 3)
	require.NoError(t, d.Close(noClient))
}

func TestBatch_countsItsReleases(t *testing.T) {
	calls := append(ofEach(), ofEach()...)
	all := combined(calls)
	assert.Equal(t, "aeraer", all.Args[0])
	counts := all.Args[1].(Counter)
	for _, want := range []string{"0 0 ", "1 1 "} {
		assert.Equal(t, want, written(t, counts))
	}
	counts.NotRun()
	assert.Equal(t, "1 1 ", written(t, counts))
	assert.Empty(t, combined(ofEach()[:2]).Args[1], "a client library may send it again")
	assert.Len(t, apartOf(t, all), 6)
}
