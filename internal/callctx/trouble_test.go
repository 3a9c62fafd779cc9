package callctx_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/callctx"
)

// counted is a context of somebody's own that counts who is to be told of its end.
type counted struct {
	context.Context

	told atomic.Int32
}

// AfterFunc is called by package context.
func (c *counted) AfterFunc(f func()) func() bool {
	c.told.Add(1)
	forget := context.AfterFunc(c.Context, f)
	return func() bool {
		c.told.Add(-1)
		return forget()
	}
}

// Value hides the contexts that package context knows.
func (c *counted) Value(any) any { return nil }

// A client library may ask for Done when the call is over.
func TestContext_askedAfterItsEndLeavesNothingBehind(t *testing.T) {
	for name, asked := range map[string]func(context.Context){
		"before": func(ctx context.Context) { _ = ctx.Done() },
		"never":  func(context.Context) {},
	} {
		t.Run(name, func(t *testing.T) {
			caller, owner := &counted{Context: t.Context()}, &counted{Context: t.Context()}
			var c callctx.Context
			c.BeginUntil(caller, owner, time.Now().Add(time.Minute))
			asked(&c)
			c.End(nil)
			<-c.Done()
			child, cancel := context.WithCancel(&c)
			assert.Equal(t, context.Canceled, child.Err())
			cancel()
			assert.Zero(t, caller.told.Load(), "of the caller's end")
			assert.Zero(t, owner.told.Load(), "of the owner's")
		})
	}
}

// detached is a context that somebody has kept from ending, though not from having a deadline.
type detached struct{ context.Context }

func (detached) Done() <-chan struct{} { return nil }
func (detached) Err() error            { return nil }

func TestContext_endsInTimeWhateverDeadlineTheCallerSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caller, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var c callctx.Context
		c.BeginUntil(detached{caller}, t.Context(), time.Now().Add(time.Minute))
		defer c.End(nil)
		began := time.Now()
		select {
		case <-c.Done():
		case <-time.After(time.Hour):
		}
		assert.Equal(t, time.Minute, time.Since(began))
		assert.Equal(t, context.DeadlineExceeded, c.Err())
	})
}

// Whoever asks how it stands need not have asked for Done.
func TestContext_askedForItsErrorFirst(t *testing.T) {
	for name, c := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := begin(t, c.owned)
				c.end(s)
				assert.Equal(t, c.err, s.Err())
				s = begin(t, c.owned)
				c.end(s)
				assert.Equal(t, c.cause, s.Cause())
			})
		})
	}
}

// Contexts that are derived from it end with it at once, without a goroutine to tell them, as those of package context do.
func TestContext_isDerivedFrom(t *testing.T) {
	type embedded struct{ context.Context }
	for _, owned := range []bool{false, true} {
		for name, derived := range map[string]func(context.Context) context.Context{
			"itself":     func(ctx context.Context) context.Context { return ctx },
			"with value": func(ctx context.Context) context.Context { return context.WithValue(ctx, key{}, "another") },
			"embedded":   func(ctx context.Context) context.Context { return embedded{ctx} },
		} {
			t.Run(name, func(t *testing.T) {
				s := begin(t, owned)
				parent := derived(&s.Context)
				child, cancel := context.WithCancel(parent)
				defer cancel()
				told := make(chan struct{})
				forget := context.AfterFunc(parent, func() { close(told) })
				free := context.WithoutCancel(parent)
				s.byCaller(errEnough)
				assert.Equal(t, context.Canceled, child.Err())
				assert.Equal(t, errEnough, context.Cause(child))
				<-told
				assert.False(t, forget())
				require.NoError(t, free.Err())
				assert.Equal(t, parent.Value(key{}), free.Value(key{}))
			})
		}
	}
}
