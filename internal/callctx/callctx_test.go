package callctx_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/callctx"
)

type key struct{}

var errEnough = errors.New("enough")

// scene is a context under test, and what may end it.
type scene struct {
	callctx.Context

	caller, owner context.Context
	byCaller      context.CancelCauseFunc
	byOwner       context.CancelFunc
}

func begin(t *testing.T, owned bool) *scene {
	s := &scene{}
	s.caller, s.byCaller = context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
	s.owner, s.byOwner = context.WithCancel(t.Context())
	t.Cleanup(func() { s.byCaller(nil); s.byOwner(); s.End(nil) })
	if owned {
		s.BeginUntil(s.caller, s.owner, time.Now().Add(time.Minute))
	} else {
		s.Begin(s.caller)
	}
	return s
}

// ends are all that may end a context, and what that makes its error and its cause.
var ends = map[string]struct {
	owned      bool
	end        func(*scene)
	err, cause error
}{
	"End":                 {false, func(s *scene) { s.End(errEnough) }, context.Canceled, errEnough},
	"End without a cause": {false, func(s *scene) { s.End(nil) }, context.Canceled, context.Canceled},
	"End, twice":          {false, func(s *scene) { s.End(errEnough); s.End(nil) }, context.Canceled, errEnough},
	"the caller":          {false, func(s *scene) { s.byCaller(errEnough) }, context.Canceled, errEnough},
	"the caller, owned":   {true, func(s *scene) { s.byCaller(errEnough) }, context.Canceled, errEnough},
	"the owner":           {true, func(s *scene) { s.byOwner() }, context.Canceled, context.Canceled},
	"time":                {true, func(*scene) { time.Sleep(time.Minute) }, context.DeadlineExceeded, context.DeadlineExceeded},
	"End, owned":          {true, func(s *scene) { s.End(nil) }, context.Canceled, context.Canceled},
}

// What ends it ends it whether it was asked for its Done before, afterwards, or never.
func TestContext_ends(t *testing.T) {
	for name, c := range ends {
		for _, asked := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := begin(t, c.owned)
					var ctx context.Context = &s.Context
					var done <-chan struct{}
					child := context.Background()
					if asked {
						done = ctx.Done()
						var cancel context.CancelFunc
						child, cancel = context.WithCancel(ctx)
						defer cancel()
					}
					require.NoError(t, ctx.Err())
					require.NoError(t, s.Cause())
					assert.Equal(t, "value", ctx.Value(key{}))
					c.end(s)
					synctest.Wait()
					if asked {
						assert.Equal(t, c.cause, context.Cause(child))
					} else {
						done = ctx.Done()
					}
					select {
					case <-done:
					default:
						t.Error("not done")
					}
					assert.Equal(t, c.err, ctx.Err())
					assert.Equal(t, c.cause, s.Cause())
					s.byCaller(errors.New("another"))
					time.Sleep(time.Hour)
					assert.Equal(t, c.err, ctx.Err(), "as before")
					assert.Equal(t, c.cause, s.Cause(), "as before")
					assert.Equal(t, "value", ctx.Value(key{}))
				})
			})
		}
	}
}

// Who asks Ends is told of all but an End where there is an owner.
func TestEnds(t *testing.T) {
	for name, c := range ends {
		if name == "time" || name == "End, owned" {
			continue
		}
		for _, asked := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				s := begin(t, c.owned)
				var one, other <-chan struct{}
				if asked {
					one, other, _ = callctx.Ends(&s.Context)
				}
				c.end(s)
				if !asked {
					one, other, _ = callctx.Ends(&s.Context)
				}
				select {
				case <-one:
				case <-other:
				case <-time.After(time.Minute):
					t.Error("neither has ended")
				}
			})
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	one, other, until := callctx.Ends(ctx)
	assert.Nil(t, other)
	assert.Zero(t, until)
	_, _, until = callctx.Ends(&begin(t, true).Context)
	assert.WithinDuration(t, time.Now().Add(time.Minute), until, 50*time.Second)
	cancel()
	<-one
}

func TestContext_deadlineIsTheSooner(t *testing.T) {
	now := time.Now()
	for theirs, want := range map[time.Duration]time.Duration{
		time.Minute: time.Minute, time.Hour: 2 * time.Minute,
	} {
		caller, cancel := context.WithDeadline(t.Context(), now.Add(theirs))
		var owned, free callctx.Context
		owned.BeginUntil(caller, t.Context(), now.Add(2*time.Minute))
		free.Begin(caller)
		got, _ := owned.Deadline()
		assert.Equal(t, now.Add(want), got)
		got, _ = free.Deadline()
		assert.Equal(t, now.Add(theirs), got)
		cancel()
	}
	var free callctx.Context
	free.Begin(t.Context())
	_, ok := free.Deadline()
	assert.False(t, ok)
}

// The many calls that nothing ends make nothing.
func TestContext_costsNothing(t *testing.T) {
	caller, owner, until := t.Context(), t.Context(), time.Now().Add(time.Hour)
	contexts := make([]callctx.Context, 1000)
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		c := &contexts[0]
		contexts = contexts[1:]
		c.BeginUntil(caller, owner, until)
		_, _, _ = callctx.Ends(c)
		_, _ = c.Deadline()
		_ = c.Err()
		c.End(nil)
	}))
}
