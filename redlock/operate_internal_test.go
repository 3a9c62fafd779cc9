package redlock

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// operated is a node of which holds are ended and listed.
type operated struct {
	stageClient
	says     inspector // of a lock; nil: whether it is among the names. Its error is that of all calls
	forced   error     // of ForceRelease
	ended    atomic.Int32
	names    []string // held; a page has one of them
	warnings []string
}

func (n *operated) Warnings(ctx context.Context) ([]string, error) {
	_, err := n.Inspect(ctx, "")
	return n.warnings, err
}

func (n *operated) ForceRelease(ctx context.Context, name string, shown driver.State) error {
	n.ended.Add(1)
	if has, _ := n.Inspect(ctx, name); !reflect.DeepEqual(has, shown) {
		return errors.New("it was not shown what the node has")
	}
	return n.forced
}

// Inspect says of each name whether it is among those of the node, if it has any.
func (n *operated) Inspect(ctx context.Context, name string) (locker.State, error) {
	if n.says != nil {
		return n.says(ctx)
	}
	return locker.State{Held: slices.Contains(n.names, name), Token: 7}, nil
}

func (n *operated) List(prefix string) driver.Pager {
	left := slices.Clone(n.names)
	return func(ctx context.Context) (page driver.Page, err error) {
		if _, err := n.Inspect(ctx, ""); err != nil {
			return page, err
		}
		if len(left) > 0 {
			if strings.HasPrefix(left[0], prefix) {
				page.Names = left[:1]
			}
			left = left[1:]
		}
		page.Last = len(left) == 0
		return page, nil
	}
}

// driverOver makes a Driver of nodes.
func driverOver(t *testing.T, all ...*operated) *backend {
	t.Helper()
	stages := newStages(len(all))
	nodes := clientsOf(stages)
	for i, n := range all {
		n.stage = stages[i]
		nodes[i] = n
	}
	made, err := NewDriver(nodes)
	require.NoError(t, err)
	d := made.(*backend)
	t.Cleanup(func() {
		if !d.closed {
			_ = d.Close()
		}
	})
	return d
}

func TestForceRelease_isWhatAMajoritySays(t *testing.T) {
	holds := func(token uint64, err error) *operated {
		return &operated{says: heldBy("a", token, 1), forced: err}
	}
	mine, other := func() *operated { return holds(7, nil) }, func() *operated { return holds(9, nil) }
	changed, released := func() *operated { return holds(7, driver.ErrHeld) }, func() *operated { return holds(7, driver.ErrNotHeld) }
	none := func() *operated { return &operated{says: free(7)} }
	away := func() *operated { return &operated{says: unreachable} }
	stuck := func() *operated { return &operated{says: hangs} }
	disagreed := errors.New("no majority")
	for name, c := range map[string]struct {
		nodes []*operated
		want  error // nil: ended
		ended int   // asked to end it
	}{
		"all have it":                        {[]*operated{mine(), mine(), mine()}, nil, 3},
		"one is unreachable":                 {[]*operated{mine(), away(), mine()}, nil, 2},
		"one does not answer":                {[]*operated{stuck(), mine(), mine()}, nil, 2},
		"a majority is unreachable":          {[]*operated{mine(), away(), away()}, disagreed, 1},
		"one that it lost is another's":      {[]*operated{mine(), mine(), other()}, nil, 2},
		"one that it lost is free":           {[]*operated{mine(), none(), mine()}, nil, 2},
		"it is gone but for one node":        {[]*operated{mine(), none(), none()}, nil, 1},
		"nobody has it":                      {[]*operated{none(), none(), none()}, driver.ErrNotHeld, 0},
		"nobody, as far as nodes answer":     {[]*operated{none(), none(), away()}, driver.ErrNotHeld, 0},
		"it was released meanwhile":          {[]*operated{released(), released(), none()}, driver.ErrNotHeld, 2},
		"another has it":                     {[]*operated{other(), other(), other()}, driver.ErrHeld, 0},
		"another has it, and it has a rest":  {[]*operated{mine(), other(), other()}, driver.ErrHeld, 1},
		"another took it meanwhile":          {[]*operated{changed(), changed(), none()}, driver.ErrHeld, 2},
		"nodes say this and that":            {[]*operated{other(), none(), away()}, disagreed, 0},
		"five, of which two do not have it":  {[]*operated{mine(), mine(), away(), none(), mine()}, nil, 3},
		"five, of which three do not answer": {[]*operated{mine(), mine(), away(), stuck(), away()}, disagreed, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := driverOver(t, c.nodes...)
				ctx, cancel := context.WithTimeout(t.Context(), longestTimeout*4)
				defer cancel()
				err := d.ForceRelease(ctx, "x", driver.State{Held: true, Token: 7})
				ended := 0
				for _, n := range c.nodes {
					ended += int(n.ended.Load())
				}
				assert.Equal(t, c.ended, ended)
				var e *Error
				switch {
				case c.want == disagreed: //nolint:errorlint // it is that one
					require.ErrorAs(t, err, &e)
					require.NotErrorIs(t, err, driver.ErrHeld)
					require.NotErrorIs(t, err, driver.ErrNotHeld)
				default:
					require.ErrorIs(t, err, c.want)
				}
			})
		})
	}
}

func TestList_hasWhatAMajorityHolds(t *testing.T) {
	names := func(all ...string) *operated { return &operated{names: all} }
	away := func() *operated { return &operated{says: unreachable} }
	stuck := func() *operated { return &operated{says: hangs} }
	late := func() *operated { // it had no name when it was asked for all
		return &operated{says: func(context.Context) (driver.State, error) { return driver.State{Held: true, Token: 7}, nil }}
	}
	for name, c := range map[string]struct {
		nodes []*operated
		want  []string
		fails bool
	}{
		"the first has it a moment later":      {[]*operated{late(), names("l:a"), names("l:a")}, []string{"l:a"}, false},
		"all have them":                        {[]*operated{names("l:a", "l:b"), names("l:b", "l:a"), names("l:a", "l:b")}, []string{"l:a", "l:b"}, false},
		"each majority":                        {[]*operated{names("l:a", "l:b"), names("l:a", "l:c"), names("l:b", "l:c")}, []string{"l:a", "l:b", "l:c"}, false},
		"minorities":                           {[]*operated{names("l:a"), names("l:b"), names("l:c")}, nil, false},
		"other prefixes":                       {[]*operated{names("k:a"), names("k:a", "l:b"), names("k:a", "l:b")}, []string{"l:b"}, false},
		"none":                                 {[]*operated{names(), names(), names()}, nil, false},
		"the first is unreachable":             {[]*operated{away(), names("l:a"), names("l:a")}, []string{"l:a"}, false},
		"the second does not answer":           {[]*operated{names("l:a"), stuck(), names("l:a", "l:b")}, []string{"l:a"}, false},
		"the last is unreachable":              {[]*operated{names("l:a", "l:b"), names("l:a"), away()}, []string{"l:a"}, false},
		"a majority is unreachable":            {[]*operated{names("l:a"), away(), away()}, nil, true},
		"a majority is unreachable, and empty": {[]*operated{away(), names(), stuck()}, nil, true},
		"five":                                 {[]*operated{away(), names("l:a"), names("l:b"), away(), names("l:a", "l:b")}, nil, false},
		"five, on three": {
			[]*operated{names("l:a"), away(), names("l:a", "l:b"), names("l:b"), names("l:b", "l:a")}, []string{"l:a", "l:b"}, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				next := driverOver(t, c.nodes...).List("l:")
				var got []string
				for {
					page, err := next(t.Context())
					if err != nil {
						require.True(t, c.fails, "%v", err)
						var e *Error
						require.ErrorAs(t, err, &e)
						return
					}
					if got = append(got, page.Names...); page.Last {
						break
					}
				}
				require.False(t, c.fails)
				slices.Sort(got)
				assert.Equal(t, c.want, got, "each once")
			})
		})
	}
}

func TestOperators_endWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := driverOver(t, &operated{says: hangs}, &operated{says: hangs}, &operated{says: hangs})
		for _, call := range []func(context.Context) error{
			func(ctx context.Context) error { _, err := d.List("l:")(ctx); return err },
			func(ctx context.Context) error { _, err := d.Inspect(ctx, "x"); return err },
			func(ctx context.Context) error { _, err := d.Warnings(ctx); return err },
			func(ctx context.Context) error {
				return d.ForceRelease(ctx, "x", driver.State{Held: true, Token: 7})
			},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			require.ErrorIs(t, call(ctx), context.Canceled)
		}
	})
}

func TestClose_endsTheDriver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, operators := stageDriver(t, newStages(3)), driverOver(t, &operated{}, &operated{}, &operated{})
		l := taken(t, d)
		require.NoError(t, d.Close())
		require.NoError(t, operators.Close())
		_, listed := operators.List("l:")(t.Context())
		_, inspected := operators.Inspect(t.Context(), "x")
		_, asked := d.Claim(askFor("x")).Ask(t.Context())
		for i, err := range []error{
			listed, inspected, operators.ForceRelease(t.Context(), "x", driver.State{}), asked, l.Extend(t.Context(), ttl), l.Release(t.Context()),
		} {
			require.ErrorIs(t, err, driver.ErrClosed, i)
		}
	})
}

func TestWarnings_areThoseOfTheNodesThatAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := &operated{warnings: []string{"it evicts keys"}}
		d := driverOver(t, first, &operated{says: hangs}, &operated{says: unreachable})
		warnings, err := d.Warnings(t.Context())
		require.NoError(t, err)
		assert.Equal(t, []string{"a:1: it evicts keys"}, warnings)
		first.says = unreachable
		_, err = d.Warnings(t.Context())
		require.ErrorIs(t, err, errRefused)
	})
}

type inspector = func(ctx context.Context) (locker.State, error)

// surveyOf inspects a lock of which the nodes say this.
func surveyOf(t *testing.T, says ...inspector) (locker.State, error) {
	t.Helper()
	all := make([]*operated, len(says))
	for i := range all {
		all[i] = &operated{says: says[i]}
	}
	return driverOver(t, all...).Inspect(t.Context(), "x")
}

func free(last uint64) inspector {
	return func(context.Context) (locker.State, error) { return locker.State{Token: last}, nil }
}

func heldBy(metadata string, token uint64, left time.Duration) inspector {
	return func(context.Context) (locker.State, error) {
		return locker.State{
			Held: true, Holder: locker.Participant{ID: "its own", Metadata: metadata}, Token: token,
			Left: left, Since: time.Unix(0, 0).Add(left),
			Waiters: make([]locker.Participant, min(10*time.Second/left, 10)), // the more, the sooner it ends
		}, nil
	}
}

func unreachable(context.Context) (locker.State, error) { return locker.State{}, errRefused }

func hangs(ctx context.Context) (locker.State, error) {
	<-ctx.Done()
	return locker.State{}, ctx.Err()
}

func TestInspect_isWhatAMajoritySays(t *testing.T) {
	held := locker.State{
		Held: true, Holder: locker.Participant{Metadata: "a"}, Token: 7,
		Left: 2 * time.Second, Since: time.Unix(2, 0), Waiters: make([]locker.Participant, 5),
	}
	for name, c := range map[string]struct {
		says []inspector
		want locker.State
	}{
		"free":                         {[]inspector{free(0), free(0), free(0)}, locker.State{}},
		"free, and one does not know":  {[]inspector{free(7), unreachable, free(0)}, locker.State{Token: 7}},
		"held by all":                  {[]inspector{heldBy("a", 7, time.Second), heldBy("a", 7, 2*time.Second), heldBy("a", 7, 2*time.Second)}, held},
		"held, and one is unreachable": {[]inspector{unreachable, heldBy("a", 7, 2*time.Second), heldBy("a", 7, 3*time.Second)}, held},
		"held, and one has lost it":    {[]inspector{free(7), heldBy("a", 7, 3*time.Second), heldBy("a", 7, 2*time.Second)}, held},
		"held, and one has another":    {[]inspector{heldBy("b", 9, time.Hour), heldBy("a", 7, 2*time.Second), heldBy("a", 7, 3*time.Second)}, held},
		"an attempt that is to fail":   {[]inspector{free(7), free(7), heldBy("b", 9, time.Second)}, locker.State{Token: 7}},
		"two of five hang":             {[]inspector{hangs, heldBy("a", 7, 2*time.Second), hangs, heldBy("a", 7, 2*time.Second), heldBy("a", 7, 9*time.Second)}, held},
		"the same token, and not they": {[]inspector{heldBy("b", 7, time.Hour), heldBy("a", 7, 2*time.Second), heldBy("a", 7, 2*time.Second)}, held},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				state, err := surveyOf(t, c.says...)
				require.NoError(t, err)
				if name == "held by all" { // two are enough, whichever they are
					assert.Contains(t, []time.Duration{time.Second, 2 * time.Second}, state.Left)
					state.Left, state.Since, state.Waiters = c.want.Left, c.want.Since, c.want.Waiters
				}
				assert.Equal(t, c.want, state)
			})
		})
	}
}

func TestInspect_withoutAMajoritySaysHowEachHasAnswered(t *testing.T) {
	for want, says := range map[string][]inspector{
		"no majority of 3 nodes: a:1: held under token 7; b:1: the lock is not held; c:1: connection refused": {heldBy("a", 7, time.Second), free(7), unreachable},
		"no majority of 3 nodes: a:1: held under token 7; b:1: held under token 8; c:1: held under token 9":   {heldBy("", 7, time.Second), heldBy("", 8, time.Second), heldBy("", 9, time.Second)},
		"no majority of 3 nodes: a:1: no answer within 500ms; b:1: the lock is not held; c:1: no answer":      {hangs, free(7), hangs},
	} {
		t.Run(want, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				state, err := surveyOf(t, says...)
				assert.LessOrEqual(t, time.Since(began), longestTimeout, "nodes that do not inspector are asked once")
				assert.Equal(t, locker.State{}, state)
				var e *Error
				require.ErrorAs(t, err, &e)
				require.ErrorContains(t, err, want)
				for _, not := range []error{locker.ErrHeld, locker.ErrNotHeld, context.DeadlineExceeded} {
					assert.NotErrorIs(t, err, not)
				}
			})
		})
	}
}

// Votes are split when it is looked at first.
func TestInspect_looksAgainWhileVotesAreSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		settling := func(first, then inspector) inspector {
			return func(ctx context.Context) (locker.State, error) {
				if time.Since(start) < 3*surveyInterval {
					return first(ctx)
				}
				return then(ctx)
			}
		}
		a, b := heldBy("a", 7, time.Second), heldBy("b", 8, time.Second)
		state, err := surveyOf(t, settling(a, a), settling(free(6), a), settling(b, free(6)))
		require.NoError(t, err)
		assert.EqualValues(t, 7, state.Token)
	})
}

func TestInspect_endsInTimeToBeHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := func() *operated { return &operated{says: hangs} }
		d := driverOver(t, stuck(), stuck(), stuck())
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := d.Inspect(ctx, "x")
		require.ErrorContains(t, err, "no majority of 3 nodes")
		assert.Equal(t, time.Millisecond, time.Since(start))
	})
}
