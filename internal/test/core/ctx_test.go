package core_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/memory"
)

var errShutdown = errors.New("shutting down")

// ending is a context that ends after d, with cause errShutdown.
func ending(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeoutCause(t.Context(), d, errShutdown)
	t.Cleanup(cancel)
	return ctx
}

// interruptedBy asserts that err is what a call returns that ctx has ended.
func interruptedBy(ctx context.Context, t *testing.T, err error) {
	t.Helper()
	require.ErrorIs(t, err, ctx.Err())
	require.ErrorIs(t, err, context.Cause(ctx))
}

func TestCalls_ofAnEndedContextSendNothing(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errShutdown)
		m := b.client(t).Mutex("x")
		interruptedBy(ctx, t, m.Lock(ctx))
		interruptedBy(ctx, t, m.TryLock(ctx))
		require.NoError(t, m.Lock(t.Context()))
		interruptedBy(ctx, t, m.Extend(ctx))
		synctest.Wait()
		assert.Len(t, b.sent, 1)
	})
}

func TestLock_ctxEndsWhileTheRequestIsOut(t *testing.T) {
	each(t, map[string]fault{
		"hangs": hangs, "hangs, and heeds no ctx": hangIgnoringCtx, "granted later": {request: 3 * time.Second, ignoresCtx: true},
		"granted, reply on its way": {reply: 3 * time.Second, ignoresCtx: true}, "granted, reply given up": {hang: true},
	}, func(t *testing.T, b *backend, f fault) {
		b.next(acquire, f)
		m, ctx := b.client(t).Mutex("x"), ending(t, time.Second)
		assert.Equal(t, time.Second, took(func() {
			err := m.Lock(ctx)
			interruptedBy(ctx, t, err)
			assert.NotErrorIs(t, err, locker.ErrHeld)
		}))
		assert.Zero(t, m.FencingToken())
		time.Sleep(3 * time.Second)
		assert.Zero(t, b.holder("x"), "nothing is left behind")
	})
}

// The phases of a wait, by what the backend did before ctx ended.
func TestLock_ctxEndsWhileWaiting(t *testing.T) {
	held := fault{}
	type phase struct {
		answers []fault
		then    fault
		held    bool
		refused bool
	}
	each(t, map[string]phase{
		"in a pause after ErrHeld":                 {then: held, held: true},
		"while a request is out":                   {answers: []fault{held, held}, then: hangs, held: true},
		"while a request that ignores ctx is out":  {answers: []fault{held, held}, then: hangIgnoringCtx, held: true},
		"in a pause after a failure":               {answers: []fault{held, held}, then: unreachable, refused: true},
		"while a request is out after a failure":   {answers: []fault{held, unreachable}, then: hangs, refused: true},
		"in a pause after a failure, then ErrHeld": {answers: []fault{held, unreachable, unreachable}, then: held, held: true},
	}, func(t *testing.T, b *backend, c phase) {
		b.steal("x")
		b.next(acquire, c.answers...)
		b.every(acquire, c.then)
		ctx := ending(t, 3*time.Second)
		err := b.client(t).Mutex("x").Lock(ctx)
		assert.Equal(t, 3*time.Second, time.Since(b.start))
		interruptedBy(ctx, t, err)
		assert.Equal(t, c.held, errors.Is(err, locker.ErrHeld), "%v", err)
		assert.Equal(t, c.refused, errors.Is(err, errRefused), "%v", err)
	})
}

// One that is woken asks at once. Between that it asks again when the Driver has said so.
func TestLock_inAQueue(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		wakes := make(chan func(), 1)
		d := scripted(b, func(ctx context.Context, c *lease) (time.Duration, error) {
			c.there = true
			unknown, err := b.send(ctx, call{op: acquire, name: "x"}, func(fault) error { return nil })
			require.NoError(t, err)
			require.False(t, unknown)
			switch len(b.calls(acquire)) {
			case 1:
				wakes <- c.wake
				c.wake() // while it is asked: it may have missed something
				return time.Hour, locker.ErrHeld
			case 5:
				return c.Ask(ctx)
			}
			return time.Hour, &locker.HeldError{}
		})
		m := clientOf(t, d).Mutex("x")
		locked, _ := waiting(t, m.Lock)
		assert.Len(t, b.calls(acquire), 2, "with what came too early, once")
		time.Sleep(time.Hour + time.Minute)
		assert.Equal(t, []time.Duration{0, 0, time.Hour}, b.times(acquire))
		wake := <-wakes
		wake()
		synctest.Wait()
		wake()
		require.NoError(t, <-locked)
		assert.Equal(t, slices.Repeat([]time.Duration{time.Hour + time.Minute}, 3), b.times(acquire)[3:], "the last asks twice here")
		assert.Equal(t, life, time.Until(m.Hold().Deadline()))
	})
}

func TestLock_ctxEndsInTheQueue(t *testing.T) {
	each(t, map[string]fault{"it leaves at once": {}, "the server is slow": {request: time.Second}}, func(t *testing.T, b *backend, f fault) {
		b.every(release, f)
		d := scripted(b, func(_ context.Context, c *lease) (time.Duration, error) {
			c.there = true
			return 2 * time.Hour, locker.ErrHeld
		})
		ctx := ending(t, time.Hour)
		err := clientOf(t, d).Mutex("x").Lock(ctx)
		interruptedBy(ctx, t, err)
		require.ErrorIs(t, err, locker.ErrHeld)
		assert.LessOrEqual(t, time.Since(b.start), time.Hour+5*time.Millisecond)
		time.Sleep(f.request)
		synctest.Wait()
		assert.Len(t, b.calls(release), 1, "the waiter leaves the queue")
	})
}

// hurried is a context that does not end by the deadline that it says.
type hurried struct{ context.Context }

func (hurried) Deadline() (time.Time, bool) { return time.Now(), true }

// The context of a request may be asked for Err alone, or for Done before or after its end.
func TestLock_contextOfARequestEnds(t *testing.T) {
	type key struct{}
	for name, c := range map[string]struct {
		end  func(cancel func(), c *locker.Client) // nil: Ask returns
		want error
	}{
		"with the caller's": {func(cancel func(), _ *locker.Client) { cancel() }, context.Canceled},
		"with the Client":   {func(_ func(), c *locker.Client) { go func() { _ = c.Close() }() }, context.Canceled},
		"after half a TTL":  {func(func(), *locker.Client) { time.Sleep(ttl / 2) }, context.DeadlineExceeded},
		"when Ask returns":  {nil, context.Canceled},
	} {
		for _, asked := range []bool{true, false} {
			t.Run(fmt.Sprint(name, ", Done asked for before: ", asked), func(t *testing.T) {
				bubble(t, func(t *testing.T, b *backend) {
					caller, cancel := context.WithCancel(hurried{context.WithValue(t.Context(), key{}, 7)})
					defer cancel()
					var client *locker.Client
					var ended func()
					d := scripted(b, func(ctx context.Context, _ *lease) (time.Duration, error) {
						deadline, _ := ctx.Deadline()
						assert.Equal(t, b.start.Add(ttl/2), deadline, "and not the caller's")
						assert.Equal(t, 7, ctx.Value(key{}))
						require.NoError(t, ctx.Err())
						if asked {
							assert.False(t, fired(ctx.Done()))
						}
						ended = func() {
							synctest.Wait()
							assert.Equal(t, c.want, ctx.Err())
							assert.True(t, fired(ctx.Done()))
							assert.Equal(t, c.want, ctx.Err())
							assert.Equal(t, 7, ctx.Value(key{}))
							child, cancel := context.WithCancel(context.WithValue(ctx, key{}, 8))
							defer cancel()
							assert.Equal(t, c.want, child.Err())
						}
						if c.end != nil {
							c.end(cancel, client)
							ended()
						}
						return 0, locker.ErrHeld
					})
					client = clientOf(t, d)
					require.Error(t, client.Mutex("x").TryLock(caller))
					if c.end == nil {
						ended()
					}
				})
			})
		}
	}
}

func TestHoldContext_endsAReserveBeforeTheDeadline(t *testing.T) {
	each(t, map[string]fault{"renewals fail": unreachable, "renewals hang": hangIgnoringCtx}, func(t *testing.T, b *backend, down fault) {
		h := acquired(t, b.client(t))
		ctx, cancel := h.Context(t.Context(), 2*time.Second)
		defer cancel()
		time.Sleep(3 * ttl)
		require.NoError(t, ctx.Err(), "each renewal moves the end")
		b.every(extend, down)
		<-ctx.Done()
		assert.Equal(t, 2*time.Second, time.Until(h.Deadline()))
		require.NoError(t, h.Err(), "it is not lost yet")
		noErrorIs(t, context.Cause(ctx), locker.ErrLost, locker.ErrNotHeld, context.Canceled)
		require.ErrorContains(t, context.Cause(ctx), `the lock "x" was not renewed: no more than 2s is left`)
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		b.every(extend, fault{})
		time.Sleep(3 * ttl)
		require.NoError(t, h.Err(), "it is renewed again")
		require.ErrorIs(t, ctx.Err(), context.Canceled, "that context stays ended")
		again, cancel := h.Context(t.Context(), 2*time.Second)
		defer cancel()
		require.NoError(t, again.Err())
	})
}

func TestHoldContext_eachHasItsOwnReserve(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		h := acquired(t, b.client(t, locker.WithoutRenewal()))
		for _, c := range []struct {
			reserve, left time.Duration
			lost          bool
		}{
			{reserve: time.Hour, left: life},
			{reserve: 4 * time.Second, left: 4 * time.Second},
			{reserve: time.Millisecond, left: time.Millisecond},
			{reserve: 0, lost: true},
			{reserve: -time.Second, lost: true},
		} {
			ctx, cancel := h.Context(t.Context(), c.reserve)
			t.Cleanup(cancel)
			<-ctx.Done()
			assert.Equal(t, c.left, time.Until(h.Deadline()), "reserve %v", c.reserve)
			if c.lost {
				require.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
			}
		}
	})
}

func TestHoldContext_endsWithALossThatComesFirst(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		h := acquired(t, b.client(t))
		ctx, cancel := h.Context(t.Context(), time.Second)
		defer cancel()
		b.steal("x")
		<-ctx.Done()
		assert.Less(t, time.Since(b.start), ttl/2)
		require.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
		late, cancel := h.Context(t.Context(), time.Second)
		defer cancel()
		assert.True(t, fired(late.Done()))
		require.ErrorIs(t, context.Cause(late), locker.ErrLost)
	})
}

func TestHoldContext_endsWithUnlockWhichItDoesNotDisturb(t *testing.T) {
	each(t, map[string]bool{"by that context": true, "by another": false}, func(t *testing.T, b *backend, carried bool) {
		h := acquired(t, b.client(t))
		ctx, cancel := h.Context(t.Context(), time.Second)
		defer cancel()
		unlocking := t.Context()
		if carried {
			unlocking = ctx
		}
		b.every(release, fault{request: time.Second, reply: time.Second, then: func() {
			assert.Equal(t, carried, ctx.Err() == nil, "by another it ends before the release")
			assert.ErrorIs(t, h.Unlock(unlocking), locker.ErrNotHeld, "which disturbs it no more")
		}})
		require.NoError(t, h.Unlock(unlocking))
		assert.Zero(t, b.holder("x"), "released when Unlock returned")
		require.Equal(t, locker.ErrNotHeld, context.Cause(ctx))
		late, cancel := h.Context(t.Context(), 0)
		defer cancel()
		require.Equal(t, locker.ErrNotHeld, context.Cause(late))
	})
}

func TestHoldContext_isAlsoTheCallersOwn(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		h := acquired(t, b.client(t))
		type key struct{}
		outer, stop := context.WithTimeoutCause(context.WithValue(t.Context(), key{}, 7), time.Hour, errShutdown)
		defer stop()
		ctx, cancel := h.Context(outer, time.Second)
		defer cancel()
		assert.Equal(t, 7, ctx.Value(key{}))
		deadline, _ := ctx.Deadline()
		assert.Equal(t, b.start.Add(time.Hour), deadline)
		child, stopChild := context.WithCancel(ctx)
		defer stopChild()
		<-child.Done()
		assert.Equal(t, time.Hour, time.Since(b.start))
		require.Equal(t, errShutdown, context.Cause(ctx))

		other, cancel := h.Context(t.Context(), time.Second)
		cancel()
		require.Equal(t, context.Canceled, context.Cause(other))
		require.NoError(t, h.Unlock(t.Context()))
	})
}

// Whoever looks at one context while another goroutine notices the end, and has told others of it
// but not yet this one, must not go on.
func TestHoldContext_hasEndedThoughWhoNoticedIsStillTellingOthers(t *testing.T) {
	each(t, map[string]time.Duration{"a loss": 0, "a reserve": 2 * time.Second}, func(t *testing.T, b *backend, reserve time.Duration) {
		h := acquired(t, b.client(t, locker.WithoutRenewal()))
		var later context.Context
		looks := 0
		told, cancel := h.Context(asked{t.Context(), func() {
			if later == nil {
				return
			}
			looks++
			require.Error(t, later.Err())
			assert.True(t, fired(later.Done()))
			assert.Equal(t, reserve == 0, errors.Is(context.Cause(later), locker.ErrLost))
		}}, reserve)
		defer cancel()
		later, cancel = h.Context(t.Context(), reserve)
		defer cancel()
		<-told.Done()
		synctest.Wait()
		assert.NotZero(t, looks)
	})
}

// asked calls a function when it is asked for Done, as a context does that ends before its parent.
type asked struct {
	context.Context

	look func()
}

func (a asked) Done() <-chan struct{} {
	a.look()
	return a.Context.Done()
}

// lookingContext is like Do's: its Err checks whether the hold has ended, and then ends it.
type lookingContext struct {
	context.Context
	look func()
}

func (c lookingContext) Err() error {
	c.look()
	return c.Context.Err()
}

func TestTryLock_besideAHoldWhoseContextLooksAtIt(t *testing.T) {
	c, err := locker.New(memory.NewDriver(memory.InSpace(t.Name())))
	require.NoError(t, err)
	m := c.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	tried := make(chan error, 1)
	go func() { tried <- m.TryLock(lookingContext{t.Context(), func() { m.Hold() }}) }()
	select {
	case err := <-tried:
		require.ErrorIs(t, err, locker.ErrHeld)
	case <-time.After(10 * time.Second):
		t.Fatal("it waits for itself")
	}
	require.NoError(t, c.Close())
}
