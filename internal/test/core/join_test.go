package core_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testwait"
)

func notCalled(context.Context, *locker.Hold) error { panic("f ran") }

func TestJoin_sharesTheHoldThatItsContextCarries(t *testing.T) {
	type inner = func(ctx context.Context) error
	each(t, map[string]func(ctx context.Context, m *locker.Mutex, f inner) error{
		"Do": func(ctx context.Context, m *locker.Mutex, f inner) error { return m.Do(ctx, f) },
		"Join": func(ctx context.Context, m *locker.Mutex, f inner) error {
			return m.Join(ctx, func(ctx context.Context, _ *locker.Hold) error { return f(ctx) })
		},
		"Acquire": func(ctx context.Context, m *locker.Mutex, f inner) error {
			h, err := m.Acquire(ctx)
			require.NoError(t, err)
			ctx, cancel := h.Context(ctx, time.Second)
			defer cancel()
			require.NoError(t, f(ctx))
			return h.Unlock(ctx)
		},
	}, func(t *testing.T, b *backend, outer func(ctx context.Context, m *locker.Mutex, f inner) error) {
		c := b.client(t)
		type key struct{}
		require.NoError(t, outer(t.Context(), c.Mutex("x"), func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(context.WithValue(ctx, key{}, 7))
			defer cancel()
			m, token := c.Mutex("x"), b.holder("x")
			require.Equal(t, errWork, m.Join(ctx, func(ctx context.Context, h *locker.Hold) error {
				assert.Equal(t, token, h.Token())
				assert.Equal(t, 7, ctx.Value(key{}))
				assert.Zero(t, m.FencingToken())
				return c.Mutex("x").Join(ctx, func(ctx context.Context, again *locker.Hold) error {
					assert.Same(t, h, again)
					return errWork
				})
			}))
			assert.Equal(t, token, b.holder("x"), "its end releases nothing")
			assert.Len(t, b.calls(acquire), 1)
			assert.Empty(t, b.calls(release))
			return ctx.Err()
		}))
		assert.Zero(t, b.holder("x"), "the outer one ends it")
		assert.Len(t, b.calls(release), 1)
	})
}

func TestJoin_withoutAHoldToJoinTakesTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.client(t).Mutex("x")
		require.ErrorIs(t, m.Join(t.Context(), func(ctx context.Context, h *locker.Hold) error {
			assert.Equal(t, h.Token(), b.holder("x"))
			time.Sleep(3 * ttl)
			require.NoError(t, ctx.Err())
			return errWork
		}), errWork)
		assert.Zero(t, b.holder("x"))
		assert.PanicsWithValue(t, "oops", func() {
			_ = m.Join(t.Context(), func(context.Context, *locker.Hold) error { panic("oops") })
		})
		assert.Zero(t, b.holder("x"))

		ctx, cancel := context.WithCancel(t.Context())
		b.next(release, fault{request: time.Second})
		require.NoError(t, m.Join(ctx, func(context.Context, *locker.Hold) error { cancel(); return nil }), "it awaits the release")
		b.every(release, unreachable)
		err := m.Join(t.Context(), func(context.Context, *locker.Hold) error { return errWork })
		require.ErrorIs(t, err, errWork)
		require.ErrorIs(t, err, errRefused)
		b.every(acquire, unreachable)
		require.ErrorContains(t, m.Join(t.Context(), notCalled), `lock "x"`)
	})
}

func TestJoin_ofAnotherLockOrClientTakesThat(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		require.NoError(t, c.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
			for _, other := range []*locker.Mutex{c.Mutex("y"), b.client(t, locker.WithPrefix("other")).Mutex("x")} {
				require.NoError(t, other.Join(ctx, func(_ context.Context, h *locker.Hold) error {
					assert.Greater(t, h.Token(), b.holder("x"), "a hold of its own")
					return nil
				}))
			}
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			require.ErrorIs(t, b.client(t).Mutex("x").Join(short, notCalled), locker.ErrHeld)
			require.ErrorIs(t, c.Mutex("x").Join(ending(t, time.Second), notCalled), locker.ErrHeld, "its context carries none")
			return nil
		}))
	})
}

// Also with a context that does not end it is told of the loss, and says so.
func TestJoin_ofAHoldThatIsLostMeanwhile(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		b.every(extend, hangIgnoringCtx)
		require.ErrorIs(t, c.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
			ctx = context.WithoutCancel(ctx)
			err := c.Mutex("x").Join(ctx, func(ctx context.Context, h *locker.Hold) error {
				<-ctx.Done()
				assert.Equal(t, life, time.Since(b.start))
				require.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
				return nil
			})
			require.ErrorIs(t, err, locker.ErrLost, "nil never hides a loss")
			require.ErrorContains(t, err, `join "x"`)
			require.ErrorIs(t, c.Mutex("x").Join(ctx, notCalled), locker.ErrLost, "it takes no other instead")
			return nil
		}), locker.ErrLost)
		assert.Len(t, b.calls(acquire), 1)
	})
}

func TestJoin_whichOutlivesTheOuterOne(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		contexts := make(chan context.Context, 1)
		var running <-chan error
		require.NoError(t, c.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
			contexts <- ctx
			running = testwait.Go(func() error {
				return c.Mutex("x").Join(context.WithoutCancel(ctx), func(ctx context.Context, h *locker.Hold) error {
					<-ctx.Done()
					assert.NotZero(t, b.holder("x"), "it is told before the release")
					require.ErrorIs(t, context.Cause(ctx), locker.ErrNotHeld)
					return nil
				})
			})
			synctest.Wait()
			b.next(release, fault{request: time.Second})
			return nil
		}))
		late := <-contexts
		require.ErrorIs(t, <-running, locker.ErrNotHeld, "nil never hides that it had no lock")
		require.ErrorIs(t, c.Mutex("x").Join(context.WithoutCancel(late), notCalled), locker.ErrNotHeld)
		err := c.Mutex("x").Join(late, notCalled)
		require.ErrorIs(t, err, locker.ErrNotHeld)
		require.ErrorIs(t, err, context.Canceled)
		assert.Len(t, b.calls(acquire), 1)
	})
}

func TestJoin_whoseContextHasEnded(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		require.NoError(t, c.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
			own, cancel := context.WithCancelCause(ctx)
			cancel(errShutdown)
			err := c.Mutex("x").Join(own, notCalled)
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, errShutdown)
			require.NotErrorIs(t, err, locker.ErrNotHeld)
			require.ErrorContains(t, c.Mutex("x", nil).Join(ctx, notCalled), "nil MutexOption")
			return nil
		}))
		assert.Len(t, b.calls(acquire), 1)
	})
}

func TestJoin_whoseFunctionPanicsOrUnlocks(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		require.ErrorIs(t, c.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
			assert.PanicsWithValue(t, "oops", func() {
				_ = c.Mutex("x").Join(ctx, func(context.Context, *locker.Hold) error { panic("oops") })
			})
			assert.NotZero(t, b.holder("x"))
			err := c.Mutex("x").Join(ctx, func(ctx context.Context, h *locker.Hold) error { return h.Unlock(ctx) })
			require.ErrorIs(t, err, locker.ErrNotHeld)
			return nil
		}), locker.ErrNotHeld, "the outer one, too")
	})
}
