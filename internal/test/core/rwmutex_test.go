package core_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/memory"
)

// shared runs a test in a bubble. Each call of open is another process of one space.
func shared(t *testing.T, f func(t *testing.T, open func(...locker.Option) *locker.RWMutex)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, func(opts ...locker.Option) *locker.RWMutex {
			return clientOf(t, memory.NewDriver(memory.InSpace(t.Name())), opts...).RWMutex("x")
		})
	})
}

// waiting is a call that waits, and has not returned.
func waiting(t *testing.T, f func(context.Context) error) (result <-chan error, cancel func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	synctest.Wait()
	require.Empty(t, done, "it does not wait")
	return done, cancel
}

// What a context carries tells of a wait for oneself, which would stop everybody else's.
func TestRWMutex_waitingForItselfIsRefusedAtOnce(t *testing.T) {
	shared(t, func(t *testing.T, open func(...locker.Option) *locker.RWMutex) {
		m := open()
		require.NoError(t, m.Do(t.Context(), func(ctx context.Context) error {
			require.ErrorIs(t, m.RDo(ctx, nil), locker.ErrReentrant)
			require.ErrorIs(t, m.Do(ctx, nil), locker.ErrReentrant)
			ran, err := m.TryDo(ctx, nil)
			require.NoError(t, err)
			assert.False(t, ran)
			return nil
		}))
	})
}

func TestRWMutex_anUpgradeIsRefusedAtOnce(t *testing.T) {
	shared(t, func(t *testing.T, open func(...locker.Option) *locker.RWMutex) {
		m := open()
		require.NoError(t, m.RLock(t.Context()))
		require.ErrorIs(t, m.Lock(t.Context()), locker.ErrUpgrade)
		require.ErrorIs(t, m.TryLock(t.Context()), locker.ErrUpgrade)
		require.ErrorIs(t, m.Do(t.Context(), nil), locker.ErrUpgrade)
		assert.NotZero(t, m.FencingToken(), "the share lasts")
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, m.RDo(t.Context(), func(ctx context.Context, h *locker.Hold) error {
			beside, err := m.TryRAcquire(t.Context())
			require.NoError(t, err)
			assert.Equal(t, h.Token(), beside.Token())
			require.NoError(t, beside.Unlock(t.Context()))
			require.ErrorIs(t, m.Lock(ctx), locker.ErrUpgrade)
			require.ErrorIs(t, m.RDo(ctx, nil), locker.ErrReentrant, "it would wait behind a writer that has come in between")
			beside, err = m.TryRAcquire(ctx)
			require.NoError(t, err, "it does not wait")
			within, cancel := beside.Context(ctx, 0)
			defer cancel()
			require.NoError(t, beside.Unlock(ctx))
			require.ErrorIs(t, m.TryLock(context.WithoutCancel(within)), locker.ErrUpgrade, "the outer share lasts")
			_, err = m.TryAcquire(ctx)
			require.ErrorIs(t, err, locker.ErrUpgrade)
			require.ErrorIs(t, m.Join(ctx, nil), locker.ErrUpgrade)
			return nil
		}))
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
	})
}

func TestRWMutex_unlockWithTheContextOfAnotherShareWithin(t *testing.T) {
	shared(t, func(t *testing.T, open func(...locker.Option) *locker.RWMutex) {
		m, ctx := open(), t.Context()
		var holds [2]*locker.Hold
		for i := range holds {
			h, err := m.TryRAcquire(ctx)
			require.NoError(t, err)
			own, cancel := h.Context(ctx, 0)
			t.Cleanup(cancel)
			holds[i], ctx = h, own
		}
		require.NoError(t, holds[0].Unlock(ctx), "which would end with its own context")
		require.Equal(t, locker.ErrNotHeld, context.Cause(ctx))
	})
}

func TestRWMutex_downgradeIsObserved(t *testing.T) {
	shared(t, func(t *testing.T, open func(...locker.Option) *locker.RWMutex) {
		s := &spy{}
		m := open(s.observer())
		is := func(token uint64, err error) {
			t.Helper()
			call, r := s.last()
			assert.Equal(t, locker.Call{Op: "downgrade", Name: "x"}, call)
			assert.Equal(t, token, r.Token)
			assert.Equal(t, err, r.Err, "what the caller gets")
		}
		err := m.Downgrade(t.Context())
		require.ErrorIs(t, err, locker.ErrNotHeld)
		is(0, err)
		require.NoError(t, m.Lock(t.Context()))
		is(m.FencingToken(), m.Downgrade(t.Context()))
		require.ErrorIs(t, m.Lock(t.Context()), locker.ErrUpgrade, "it is a share now")
		require.NoError(t, m.Unlock(t.Context()))
	})
}

func TestRWMutex_whoWaitsForItsOwnHoldIsToldOfClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clientOf(t, memory.NewDriver(memory.InSpace(t.Name())))
		m := c.RWMutex("x")
		require.NoError(t, m.RLock(t.Context()))
		first, _ := waiting(t, m.RLock)
		second, _ := waiting(t, m.RLock)
		require.NoError(t, c.Close())
		require.ErrorIs(t, <-first, locker.ErrClosed)
		require.ErrorIs(t, <-second, locker.ErrClosed)
	})
}

func TestRWMutex_ofABackendWithoutShares(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.client(t).RWMutex("x")
		for _, f := range []func(context.Context) error{m.RLock, m.TryRLock} {
			require.ErrorIs(t, f(t.Context()), locker.ErrUnsupported)
		}
		assert.Empty(t, b.sent)
		h := acquired(t, b.client(t))
		require.ErrorIs(t, h.Downgrade(t.Context()), locker.ErrUnsupported)
		require.NoError(t, h.Err())
	})
}

// stubbornLease is downgraded as a test says.
type stubbornLease struct {
	driver.Claim
	answer func(context.Context) error
}

func (l stubbornLease) Downgrade(ctx context.Context) error { return l.answer(ctx) }

func TestRWMutex_downgradeThatFails(t *testing.T) {
	says := func(answer error) func(context.Context) error {
		return func(context.Context) error { return answer }
	}
	late := func(answer error) func(context.Context) error { // after a pause of the process
		return func(context.Context) error { time.Sleep(2 * ttl); return answer }
	}
	silent := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	type failure struct {
		answer      func(context.Context) error
		want, after error
	}
	each(t, map[string]failure{
		"an error":                     {says(errRefused), errRefused, nil},
		"lost":                         {says(driver.ErrLost), locker.ErrLost, locker.ErrLost},
		"silence":                      {silent, context.DeadlineExceeded, nil},
		"a success after the deadline": {late(nil), locker.ErrLost, locker.ErrLost},
		"an error after the deadline":  {late(errRefused), locker.ErrLost, locker.ErrLost},
	}, func(t *testing.T, b *backend, c failure) {
		d := &fakeDriver{b: b, wrap: func(l driver.Claim) driver.Claim { return stubbornLease{l, c.answer} }}
		h, err := clientOf(t, d, locker.WithoutRenewal()).RWMutex("x").TryAcquire(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, h.Downgrade(ending(t, time.Second)), c.want)
		require.ErrorIs(t, h.Err(), c.after)
		require.ErrorIs(t, h.Unlock(t.Context()), c.after)
		require.ErrorIs(t, h.Downgrade(t.Context()), locker.ErrNotHeld)
	})
}
