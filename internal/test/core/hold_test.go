package core_test

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

func TestHold_isIndependentOfTheMutexsOwn(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.client(t).Mutex("x")
		h, err := m.Acquire(t.Context())
		require.NoError(t, err)
		assert.Zero(t, m.FencingToken())
		assert.Nil(t, m.Hold())
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrNotHeld)
		require.ErrorIs(t, m.TryLock(t.Context()), locker.ErrHeld)
		_, err = m.TryAcquire(t.Context())
		require.ErrorIs(t, err, locker.ErrHeld)
		require.NoError(t, h.Unlock(t.Context()))
		require.NoError(t, m.TryLock(t.Context()))
	})
}

func TestHold_costsNoGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		before := runtime.NumGoroutine()
		holdMany(t, c, 100)
		h := acquired(t, c)
		for range 100 {
			_, cancel := h.Context(t.Context(), time.Second)
			t.Cleanup(cancel)
		}
		synctest.Wait()
		assert.Less(t, runtime.NumGoroutine(), before+50)
	})
}

// told is a context of somebody's own that counts who is to be told of its end.
type told struct {
	context.Context

	whom atomic.Int32
}

// AfterFunc is called by package context.
func (c *told) AfterFunc(f func()) func() bool {
	c.whom.Add(1)
	forget := context.AfterFunc(c.Context, f)
	return func() bool {
		c.whom.Add(-1)
		return forget()
	}
}

// Value hides the contexts that package context knows.
func (c *told) Value(any) any { return nil }

// What outlives its calls, as the context of a whole program does, is not to gather them.
func TestCalls_leaveNothingBehindInTheirContext(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c, ctx := b.client(t), &told{Context: t.Context()}
		h, err := c.Mutex("x").TryAcquire(ctx)
		require.NoError(t, err)
		require.ErrorIs(t, c.Mutex("x").TryLock(ctx), locker.ErrHeld)
		require.NoError(t, h.Extend(ctx))
		require.NoError(t, h.Unlock(ctx))
		synctest.Wait()
		assert.Zero(t, ctx.whom.Load())

		asked := make(chan context.Context, 1)
		d := scripted(b, func(ctx context.Context, _ *lease) (time.Duration, error) {
			asked <- ctx
			return 0, locker.ErrHeld
		})
		require.ErrorIs(t, clientOf(t, d).Mutex("x").TryLock(ctx), locker.ErrHeld)
		assert.True(t, fired((<-asked).Done()))
		assert.Zero(t, ctx.whom.Load(), "nor if a request's context is used after its end")
	})
}

func TestAbandon_leavesTheLockTakenUntilItExpires(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.client(t).Mutex("x")
		h, err := m.Acquire(t.Context())
		require.NoError(t, err)
		ctx, cancel := h.Context(t.Context(), 0)
		defer cancel()
		time.Sleep(ttl)
		extensions := len(b.calls(extend))
		require.Positive(t, extensions)
		deadline := h.Deadline()
		assert.Zero(t, took(func() { require.NoError(t, h.Abandon()) }))

		require.ErrorIs(t, h.Err(), locker.ErrNotHeld)
		require.Equal(t, locker.ErrNotHeld, context.Cause(ctx))
		require.Equal(t, &locker.Error{Op: "abandon", Name: "x", Err: locker.ErrNotHeld}, h.Abandon())
		require.ErrorIs(t, h.Unlock(t.Context()), locker.ErrNotHeld)
		require.ErrorIs(t, h.Extend(t.Context()), locker.ErrNotHeld)
		assert.Equal(t, h.Token(), b.holder("x"))
		require.ErrorIs(t, m.TryLock(t.Context()), locker.ErrHeld)
		time.Sleep(time.Until(deadline))
		synctest.Wait()
		assert.False(t, fired(h.Lost()), "its holder ended it")
		require.NoError(t, m.Lock(t.Context()))
		assert.Len(t, b.calls(extend), extensions, "it is renewed no more")
		assert.Empty(t, b.calls(release))
		require.NoError(t, m.Unlock(t.Context()))
	})
}

func TestAbandon_releasesALeaseThatGoesOnInItsSession(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		h := acquired(t, clientOf(t, lasting(b, forHours)))
		require.NoError(t, h.Abandon())
		time.Sleep(life)
		synctest.Wait()
		assert.Empty(t, b.calls(release))
		time.Sleep(drift)
		synctest.Wait()
		assert.Len(t, b.calls(release), 1)
	})
}

func TestExtend_believesTheLeaseThatLessIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.locked(t, locker.WithoutRenewal())
		before := m.Hold().Deadline()
		b.next(extend, fault{age: 2 * time.Second}, fault{age: time.Second})
		time.Sleep(time.Second)
		require.NoError(t, m.Extend(t.Context()))
		assert.Equal(t, before, m.Hold().Deadline(), "an older contact changes nothing")
		time.Sleep(time.Second)
		require.NoError(t, m.Extend(t.Context()))
		assert.Equal(t, before.Add(time.Second), m.Hold().Deadline())
	})
}

// What is not answered by the deadline may have succeeded. A process that stands still heeds no
// context.
func TestExtend_thatIsNotAnsweredByTheDeadlineIsGivenBack(t *testing.T) {
	type late struct{ ignoresCtx, deaf bool }
	each(t, map[string]late{
		"heeds ctx": {}, "does not": {ignoresCtx: true}, "stands still": {deaf: true},
	}, func(t *testing.T, b *backend, c late) {
		b.every(extend, fault{reply: time.Second, ignoresCtx: c.ignoresCtx})
		m := lockedOf(t, &fakeDriver{b: b, deaf: c.deaf}, locker.WithoutRenewal())
		time.Sleep(life - 500*time.Millisecond)
		require.ErrorIs(t, m.Extend(t.Context()), locker.ErrLost)
		assert.Equal(t, c.deaf, time.Since(b.start) > life, "at the deadline, not when the answer comes")
		assert.True(t, fired(m.Hold().Lost()))
		time.Sleep(time.Second)
		assert.Len(t, b.calls(release), 1)
		assert.Zero(t, b.holder("x"))
	})
}

// Whatever becomes of the request, and whoever ends it.
func TestExtend_thatFailsLeavesTheOldDeadline(t *testing.T) {
	each(t, map[string]fault{
		"never arrives": unreachable, "its reply is lost": unheard, "hangs": hangs, "hangs, and heeds no ctx": hangIgnoringCtx,
		"succeeds when its caller has left": {reply: 2 * time.Second, ignoresCtx: true},
	}, func(t *testing.T, b *backend, f fault) {
		b.every(extend, f)
		m := b.locked(t, locker.WithoutRenewal())
		time.Sleep(time.Second)
		before, ctx := m.Hold().Deadline(), ending(t, time.Second)
		took := took(func() {
			err := m.Extend(ctx)
			noErrorIs(t, err, locker.ErrLost)
			if f.err == nil {
				interruptedBy(ctx, t, err)
			} else {
				require.ErrorIs(t, err, errRefused)
			}
		})
		assert.Equal(t, f.err == nil, took == time.Second)
		time.Sleep(3 * time.Second)
		assert.Equal(t, before, m.Hold().Deadline())
		<-m.Hold().Lost()
		assert.Equal(t, before, time.Now())
	})
}

func TestExtend_ofAHungBackendReturnsAfterHalfATTL(t *testing.T) {
	each(t, hanging, func(t *testing.T, b *backend, f fault) {
		b.every(extend, f)
		m := b.locked(t, locker.WithoutRenewal())
		assert.Equal(t, ttl/2, took(func() { noErrorIs(t, m.Extend(context.Background()), locker.ErrLost, context.DeadlineExceeded) }))
		assert.NotZero(t, m.FencingToken(), "the old deadline stands")
	})
}
