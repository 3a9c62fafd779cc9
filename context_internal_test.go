package locker

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A process that was stopped looks, when it goes on, before any timer has fired.
func TestWake_everyLookIsByTheClock(t *testing.T) {
	const ttl = 10 * time.Second
	closed := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	for name, look := range map[string]func(*Hold, context.Context) bool{
		"Hold.Err":      func(h *Hold, _ context.Context) bool { return errors.Is(h.Err(), ErrLost) },
		"Hold.Lost":     func(h *Hold, _ context.Context) bool { return closed(h.Lost()) },
		"context.Err":   func(_ *Hold, ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) },
		"context.Done":  func(_ *Hold, ctx context.Context) bool { return closed(ctx.Done()) },
		"context.Cause": func(_ *Hold, ctx context.Context) bool { return errors.Is(context.Cause(ctx), ErrLost) },
		"of a child":    func(_ *Hold, ctx context.Context) bool { return context.WithValue(ctx, &closed, 1).Err() != nil },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := New(&always{}, WithTTL(ttl), WithoutRenewal())
				require.NoError(t, err)
				m := c.Mutex("x")
				require.NoError(t, m.Do(t.Context(), func(context.Context) error { return nil }))
				err = m.Do(t.Context(), func(ctx context.Context) error {
					h := m.current()
					c.renewer.timer.Stop()
					time.Sleep(ttl - drift(ttl) - time.Nanosecond)
					assert.False(t, look(h, ctx))
					time.Sleep(time.Nanosecond)
					assert.True(t, look(h, ctx))
					return nil
				})
				require.ErrorIs(t, err, ErrLost)
				require.NoError(t, c.Close())
			})
		})
	}
}

func TestWake_aReserveIsByTheClockToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(&always{}, WithTTL(10*time.Second), WithoutRenewal())
		require.NoError(t, err)
		h, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		ctx, cancel := h.Context(t.Context(), 2*time.Second)
		defer cancel()
		c.renewer.timer.Stop()
		time.Sleep(time.Until(h.Deadline()) - 2*time.Second - 1)
		require.NoError(t, ctx.Err())
		time.Sleep(time.Nanosecond)
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.NoError(t, h.Err())
		require.NotErrorIs(t, context.Cause(ctx), ErrLost)
		require.NoError(t, c.Close())
	})
}
