package core_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

func TestHoldContext_endsAReserveBeforeTheDeadline(t *testing.T) {
	each(t, map[string]fault{"renewals fail": unreachable, "renewals hang": hangIgnoringCtx}, func(t *testing.T, b *backend, down fault) {
		h, err := b.client(t).Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
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
	})
}

func TestHoldContext_thatHasEndedStaysSoThoughTheHoldIsRenewed(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		h, err := b.client(t).Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		ctx, cancel := h.Context(t.Context(), 2*time.Second)
		defer cancel()
		b.every(extend, unreachable)
		<-ctx.Done()
		b.every(extend, fault{})
		time.Sleep(3 * ttl)
		require.NoError(t, h.Err())
		require.Error(t, ctx.Err())
		noErrorIs(t, context.Cause(ctx), locker.ErrLost)
		again, cancel := h.Context(t.Context(), 2*time.Second)
		defer cancel()
		require.NoError(t, again.Err())
		require.NoError(t, h.Unlock(t.Context()))
	})
}

func TestHoldContext_eachHasItsOwnReserve(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		h, err := b.client(t, locker.WithoutRenewal()).Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
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
		h, err := b.client(t).Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
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
		h, err := b.client(t).Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		ctx, cancel := h.Context(t.Context(), time.Second)
		defer cancel()
		unlocking := t.Context()
		if carried {
			unlocking = ctx
		}
		b.every(release, fault{request: time.Second, then: func() {
			assert.Equal(t, carried, ctx.Err() == nil, "by another it ends before the release")
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
		h, err := b.client(t).Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
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

// The hold of each waits, with a context of the other, for the other.
func TestHoldContext_ofTwoThatWaitForEachOther(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t, locker.WithoutRenewal())
		a, z := c.Mutex("a"), c.Mutex("z")
		first := inBackground(func() error {
			return a.Do(t.Context(), func(ctx context.Context) error { time.Sleep(time.Second); return z.Lock(ctx) })
		})
		second := inBackground(func() error {
			return z.Do(t.Context(), func(ctx context.Context) error { time.Sleep(time.Second); return a.Lock(ctx) })
		})
		require.ErrorIs(t, <-first, locker.ErrLost)
		require.ErrorIs(t, <-second, locker.ErrLost)
	})
}

func TestMutexContext(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.client(t, locker.WithoutRenewal()).Mutex("x")
		ctx, cancel := m.Context(t.Context(), time.Second)
		cancel()
		require.Equal(t, locker.ErrNotHeld, context.Cause(ctx))
		require.NoError(t, m.Do(t.Context(), func(ctx context.Context) error {
			early, cancel := m.Context(ctx, 3*time.Second)
			defer cancel()
			<-early.Done()
			assert.Equal(t, 3*time.Second, time.Until(m.Deadline()))
			return ctx.Err()
		}), "there was time to stop")
	})
}

// Whoever looks at one context while another goroutine notices the end, and has told others of it
// but not yet this one, must not go on.
func TestHoldContext_hasEndedThoughWhoNoticedIsStillTellingOthers(t *testing.T) {
	each(t, map[string]time.Duration{"a loss": 0, "a reserve": 2 * time.Second}, func(t *testing.T, b *backend, reserve time.Duration) {
		h, err := b.client(t, locker.WithoutRenewal()).Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
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
