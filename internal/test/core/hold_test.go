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
	"github.com/go-locker/locker/driver"
)

func TestHold_neverSpeaksForItsSuccessor(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.client(t).Mutex("x")
		first, err := m.Acquire(t.Context())
		require.NoError(t, err)
		deadline := first.Deadline()
		require.NoError(t, first.Unlock(t.Context()))
		time.Sleep(time.Second)
		second, err := m.TryAcquire(t.Context())
		require.NoError(t, err)

		assert.EqualValues(t, 1, first.Token(), "its own, for ever")
		assert.EqualValues(t, 2, second.Token())
		assert.Equal(t, deadline, first.Deadline())
		require.ErrorIs(t, first.Extend(t.Context()), locker.ErrNotHeld)
		require.ErrorIs(t, first.Unlock(t.Context()), locker.ErrNotHeld)
		assert.Equal(t, second.Token(), b.holder("x"))

		b.steal("x")
		require.ErrorIs(t, second.Extend(t.Context()), locker.ErrLost)
		assert.True(t, fired(second.Lost()))
		assert.False(t, fired(first.Lost()))
	})
}

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
		h, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
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
		d := &scripted{&fakeDriver{b: b}, func(ctx context.Context, _ *lease, _ func()) (time.Duration, error) {
			asked <- ctx
			return 0, locker.ErrHeld
		}}
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
		require.ErrorIs(t, h.Abandon(), locker.ErrNotHeld)
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

func TestAbandon_ofAHoldThatHasEndedBefore(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t, locker.WithoutRenewal())
		lost, err := c.Mutex("lost").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(ttl)
		require.ErrorIs(t, lost.Abandon(), locker.ErrLost)
		require.ErrorContains(t, lost.Abandon(), `abandon "lost"`)
		closed, err := c.Mutex("closed").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, c.Close())
		require.ErrorIs(t, closed.Abandon(), locker.ErrLost)
		assert.Zero(t, b.holder("closed"), "Close has released it")
	})
}

func TestAbandon_releasesALeaseThatGoesOnInItsSession(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		h, err := clientOf(t, lasting(b, forHours)).Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Abandon())
		time.Sleep(life)
		synctest.Wait()
		assert.Empty(t, b.calls(release))
		time.Sleep(drift)
		synctest.Wait()
		assert.Len(t, b.calls(release), 1)
	})
}

func TestExtend_lastsOneTTLFromBeforeTheRequest(t *testing.T) {
	each(t, map[string]fault{
		"fast": {}, "slow request": {request: time.Second}, "slow reply": {reply: time.Second},
	}, func(t *testing.T, b *backend, f fault) {
		b.every(extend, f)
		m := b.locked(t, "x", locker.WithoutRenewal())
		token := m.FencingToken()
		for range 10 {
			time.Sleep(ttl / 2)
			sent := time.Now()
			require.NoError(t, m.Extend(t.Context()))
			assert.Equal(t, life, m.Hold().Deadline().Sub(sent))
		}
		assert.Equal(t, token, m.FencingToken(), "Extend leaves the token alone")
		assert.False(t, fired(m.Hold().Lost()))
		assert.Equal(t, token, b.holder("x"))
	})
}

func TestExtend_believesTheLeaseThatLessIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.locked(t, "x", locker.WithoutRenewal())
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

// What is not answered by the deadline may have succeeded.
func TestExtend_cutOffByTheDeadlineIsGivenBack(t *testing.T) {
	each(t, map[string]fault{"heeds ctx": {reply: time.Second}, "does not": {reply: time.Second, ignoresCtx: true}}, func(t *testing.T, b *backend, f fault) {
		b.every(extend, f)
		m := b.locked(t, "x", locker.WithoutRenewal())
		time.Sleep(life - 500*time.Millisecond)
		require.ErrorIs(t, m.Extend(t.Context()), locker.ErrLost)
		assert.Equal(t, life, time.Since(b.start), "at the deadline, not when the answer comes")
		assert.True(t, fired(m.Hold().Lost()))
		time.Sleep(time.Second)
		assert.Len(t, b.calls(release), 1)
		assert.Zero(t, b.holder("x"))
	})
}

// deafLease is one whose Extend does not heed its context, as a process that stands still does not.
type deafLease struct{ driver.Claim }

func (l deafLease) Extend(ctx context.Context, ttl time.Duration) error {
	return l.Claim.Extend(context.WithoutCancel(ctx), ttl)
}

func TestExtend_answeredAfterTheDeadlineIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		d := &fakeDriver{b: b, wrap: func(l driver.Claim) driver.Claim { return deafLease{l} }}
		m := clientOf(t, d, locker.WithoutRenewal()).Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		b.every(extend, fault{reply: 2 * time.Second})
		time.Sleep(life - time.Second)
		require.ErrorIs(t, m.Extend(t.Context()), locker.ErrLost)
		synctest.Wait()
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
		m := b.locked(t, "x", locker.WithoutRenewal())
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
		m := b.locked(t, "x", locker.WithoutRenewal())
		assert.Equal(t, ttl/2, took(func() { noErrorIs(t, m.Extend(context.Background()), locker.ErrLost, context.DeadlineExceeded) }))
		assert.NotZero(t, m.FencingToken(), "the old deadline stands")
	})
}
