package redlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

// seeing is a node that says of a lock what a test says.
type seeing struct {
	stageClient
	says inspector
}

type inspector = func(ctx context.Context) (locker.State, error)

func (n *seeing) Inspect(ctx context.Context, _ string) (locker.State, error) { return n.says(ctx) }

// surveyOf inspects a lock of which the nodes say this; nil is of one that cannot.
func surveyOf(t *testing.T, says ...inspector) (locker.State, error) {
	t.Helper()
	all := make([]*operated, len(says))
	for i := range all {
		if says[i] != nil {
			all[i] = &operated{seeing: seeing{says: says[i]}}
		}
	}
	return driverOver(t, all...).Inspect(t.Context(), "x")
}

func free(last uint64) inspector {
	return func(context.Context) (locker.State, error) { return locker.State{Token: last}, nil }
}

func heldBy(metadata string, token uint64, left time.Duration) inspector {
	return func(context.Context) (locker.State, error) {
		return locker.State{
			Held: true, Holder: locker.Participant{ID: "its own", Metadata: metadata}, Left: left, Token: token,
			Waiters: make([]locker.Participant, token), // as many as that
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
		Held: true, Holder: locker.Participant{Metadata: "a"}, Left: 2 * time.Second, Token: 7, Waiters: make([]locker.Participant, 7),
	}
	for name, c := range map[string]struct {
		says []inspector
		want locker.State
	}{
		"free":                         {[]inspector{free(0), free(0), free(0)}, locker.State{}},
		"free, and one does not know":  {[]inspector{free(7), unreachable, free(0)}, locker.State{Token: 7}},
		"held by all":                  {[]inspector{heldBy("a", 7, time.Second), heldBy("a", 7, 2*time.Second), heldBy("a", 7, 2*time.Second)}, held},
		"held, and one is unreachable": {[]inspector{unreachable, heldBy("a", 7, 2*time.Second), heldBy("a", 7, 3*time.Second)}, held},
		"held, and one has lost it":    {[]inspector{free(7), heldBy("a", 7, 2*time.Second), heldBy("a", 7, 3*time.Second)}, held},
		"held, and one has another":    {[]inspector{heldBy("b", 9, time.Hour), heldBy("a", 7, 2*time.Second), heldBy("a", 7, 3*time.Second)}, held},
		"an attempt that is to fail":   {[]inspector{free(7), free(7), heldBy("b", 9, time.Second)}, locker.State{Token: 7}},
		"two of five hang":             {[]inspector{hangs, heldBy("a", 7, 2*time.Second), hangs, heldBy("a", 7, 2*time.Second), heldBy("a", 7, 9*time.Second)}, held},
		"one of them cannot see":       {[]inspector{nil, free(7), free(6)}, locker.State{Token: 7}},
		"the same token, and not they": {[]inspector{heldBy("b", 7, time.Hour), heldBy("a", 7, 2*time.Second), heldBy("a", 7, 2*time.Second)}, held},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				state, err := surveyOf(t, c.says...)
				require.NoError(t, err)
				if name == "held by all" { // two are enough, whichever they are
					assert.Contains(t, []time.Duration{time.Second, 2 * time.Second}, state.Left)
					state.Left = c.want.Left
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

func TestInspect_ofNodesThatCannotSee(t *testing.T) {
	_, err := surveyOf(t, make([]inspector, 3)...)
	require.ErrorIs(t, err, locker.ErrUnsupported)
}

// Votes are split when it is looked at first.
func TestInspect_looksAgainWhileVotesAreSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		settling := func(first, then inspector) inspector {
			return func(ctx context.Context) (locker.State, error) {
				if time.Since(start) < 3*surveysApart {
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
		stuck := func() *operated { return &operated{seeing: seeing{says: hangs}} }
		d := driverOver(t, stuck(), stuck(), stuck())
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := d.Inspect(ctx, "x")
		require.ErrorContains(t, err, "no majority of 3 nodes")
		assert.Equal(t, time.Millisecond, time.Since(start))
	})
}
