package core_test

import (
	"context"
	"net"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testwait"
)

func TestUnlock_ofALostHoldEndsItAtTheBackendToo(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.locked(t)
		b.every(extend, unheard) // the backend extends the lease, and nobody here knows
		<-m.Hold().Lost()
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		synctest.Wait()
		assert.Zero(t, b.holder("x"))
	})
}

func TestUnlock_withAnEndedContextStillReleases(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errShutdown)
		b.every(release, fault{request: time.Second})
		m := b.locked(t)
		assert.Zero(t, took(func() { interruptedBy(ctx, t, m.Unlock(ctx)) }))
		require.ErrorIs(t, m.Unlock(ctx), locker.ErrNotHeld, "it has ended here")
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Zero(t, b.holder("x"))
		assert.Len(t, b.calls(release), 1, "sent at once: the next waiter is not to pay for it")
	})
}

func TestUnlock_ctxEndsWhileTheBackendHangs(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		b.every(release, hangIgnoringCtx)
		m, ctx := b.locked(t), ending(t, time.Second)
		assert.Equal(t, time.Second, took(func() { interruptedBy(ctx, t, m.Unlock(ctx)) }))
		assert.Zero(t, m.FencingToken())
	})
}

func TestUnlock_ofAHungBackendReturnsByTheDeadline(t *testing.T) {
	each(t, map[string]fault{"hangs": hangs, "hangs, and heeds no ctx": hangIgnoringCtx, "refuses slowly": {
		request: ttl / 5, lost: true, err: errRefused,
	}}, func(t *testing.T, b *backend, f fault) {
		b.every(release, f)
		m := b.locked(t, locker.WithoutRenewal())
		time.Sleep(5 * time.Second)
		deadline := m.Hold().Deadline()
		err := m.Unlock(context.Background())
		noErrorIs(t, err, context.DeadlineExceeded)
		assert.False(t, time.Now().After(deadline))
		if !time.Now().Before(deadline) {
			require.ErrorIs(t, err, locker.ErrLost, "another may hold it now")
		}
		assert.Zero(t, m.FencingToken())
	})
}

func TestUnlock_saysWhyItsRequestsFailThoughTheLastWasNotAnswered(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.locked(t)
		b.next(release, unreachable)
		b.every(release, hangs)
		require.ErrorIs(t, m.Unlock(t.Context()), errRefused)
	})
}

func TestUnlock_whoseReplyWasLostIsSentAgainAndSucceeds(t *testing.T) {
	each(t, map[string]fault{"refused": unheard, "hung": {hang: true}, "never arrived": unreachable}, func(t *testing.T, b *backend, f fault) {
		b.next(release, f, f)
		m := b.locked(t)
		require.NoError(t, m.Unlock(t.Context()))
		assert.Len(t, b.calls(release), 3)
		assert.Zero(t, b.holder("x"))
	})
}

// The caller learns of it soon, and the rest is for the background, for as long as the lease lasts.
func TestUnlock_thatFailsGoesOnInTheBackground(t *testing.T) {
	each(t, map[string]bool{"until it is answered": true, "until the lease is over": false}, func(t *testing.T, b *backend, answered bool) {
		b.every(release, unreachable)
		m := b.locked(t)
		err := m.Unlock(context.Background())
		require.ErrorIs(t, err, errRefused)
		require.NotErrorIs(t, err, locker.ErrLost)
		assert.Less(t, time.Since(b.start), time.Second)
		assert.Positive(t, time.Since(b.start), "it pauses between its tries")
		time.Sleep(3 * time.Second)
		if answered {
			b.every(release, fault{})
			time.Sleep(2 * time.Second)
			assert.Zero(t, b.holder("x"))
			return
		}
		time.Sleep(3 * ttl)
		last := slices.Max(b.times(release))
		assert.Greater(t, last, ttl-2*time.Second)
		assert.Less(t, last, ttl+2*time.Second)
	})
}

// The lock lasts longer at the backend than the holder was told.
func TestUnlock_afterAnExtensionThatNobodyHeardOfIsTriedPastTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.locked(t, locker.WithoutRenewal())
		time.Sleep(ttl / 2)
		b.next(extend, unheard)
		require.ErrorIs(t, m.Extend(t.Context()), errRefused)
		b.every(release, unreachable)
		require.ErrorIs(t, m.Unlock(t.Context()), errRefused)
		time.Sleep(ttl/2 + time.Second)
		assert.NotZero(t, b.holder("x"), "the backend has extended it")
		b.every(release, fault{})
		time.Sleep(2 * time.Second)
		assert.Zero(t, b.holder("x"))
	})
}

func TestUnlock_ofALeaseThatGoesOnIsTriedPastTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := lockedOf(t, lasting(b, forHours), locker.WithoutRenewal())
		b.every(release, unreachable)
		require.ErrorIs(t, m.Unlock(t.Context()), errRefused)
		time.Sleep(2 * ttl)
		assert.Greater(t, slices.Max(b.times(release)), ttl+ttl/2, "nobody but us can end it")
		b.every(release, fault{reply: ttl / 8})
		time.Sleep(ttl)
		assert.Less(t, slices.Max(b.times(release)), 2*ttl+ttl/2, "it was answered")
	})
}

func TestUnlock_doesNotWaitForARenewalInFlight(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		b.every(extend, fault{request: 3 * time.Second, ignoresCtx: true})
		m := b.locked(t)
		h := m.Hold().Lost()
		time.Sleep(4 * time.Second)
		require.Len(t, b.calls(extend), 1, "a renewal is on its way")
		assert.Zero(t, took(func() { require.NoError(t, m.Unlock(t.Context())) }))
		other := b.locked(t, locker.WithoutRenewal())
		time.Sleep(5 * time.Second)
		assert.Equal(t, other.FencingToken(), b.holder("x"))
		assert.Len(t, b.calls(release), 1)
		assert.Len(t, b.calls(extend), 1)
		assert.False(t, fired(h), "a hold that was unlocked is not lost")
	})
}

func TestUnlock_whileAnExtendIsInFlight(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		b.every(extend, fault{reply: time.Second})
		c := b.client(t)
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		extended := testwait.Go(func() error { return m.Extend(t.Context()) })
		synctest.Wait()
		require.NoError(t, m.Unlock(t.Context()))
		require.ErrorIs(t, <-extended, locker.ErrNotHeld)
		assert.Zero(t, b.holder("x"))
		require.NoError(t, c.Close())
		assert.Len(t, b.calls(release), 1, "to Close it is a hold no longer")
	})
}

// Each goroutine rides out TTL/2 of an outage, from when its own call began, not one after another.
func TestMutex_itsGoroutinesRideOutAnOutageTogether(t *testing.T) {
	each(t, map[string]fault{
		"hangs": hangs, "heeds no ctx": hangIgnoringCtx,
		"cannot be reached": {lost: true, err: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}},
	}, func(t *testing.T, b *backend, f fault) {
		m := b.locked(t)
		lock := func() (took time.Duration) {
			began := time.Now()
			noErrorIs(t, m.Lock(context.Background()), locker.ErrHeld, context.DeadlineExceeded)
			return time.Since(began)
		}
		early, late := make(chan time.Duration, 20), make(chan time.Duration, 20)
		time.Sleep(ttl) // which those who wait for the holder do not count
		first := testwait.Go(func() error { return m.Lock(ending(t, ttl*3/8)) })
		synctest.Wait()
		for range cap(early) {
			go func() { early <- lock() }()
		}
		synctest.Wait()
		time.Sleep(ttl / 4)
		b.down(f)
		go func() { _ = m.Unlock(context.Background()) }()
		time.Sleep(ttl / 4)
		for range cap(late) {
			go func() { late <- lock() }()
		}
		require.ErrorIs(t, <-first, context.DeadlineExceeded)
		for range cap(early) {
			assert.InDelta(t, ttl*3/4, <-early, float64(ttl/50), "in a row from ttl/4 on")
		}
		for range cap(late) {
			assert.InDelta(t, ttl/2, <-late, float64(ttl/50))
		}
		b.down(fault{})
		require.NoError(t, m.Lock(t.Context()), "the outage is over")
	})
}

// A failure is no outage that a later goroutine counts, if the lock was held in between.
func TestMutex_anOutageBeforeAHoldDoesNotCount(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.locked(t)
		waits := testwait.Go(func() error { return m.Lock(context.Background()) })
		synctest.Wait()
		b.every(acquire, hangs)
		_, err := m.Acquire(context.Background())
		noErrorIs(t, err, locker.ErrHeld)
		time.Sleep(ttl)
		b.every(acquire, fault{})
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, <-waits)
	})
}

// A turn that is given to a goroutine whose context has ended just before goes to the next.
func TestMutex_aTurnIsNotLost(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // that goroutine runs when both have happened
	bubble(t, func(t *testing.T, b *backend) {
		m := b.locked(t)
		leaves, leave := waiting(t, m.Lock)
		stays, _ := waiting(t, m.Lock)
		ended, end := context.WithCancel(t.Context())
		end()
		leave()
		require.ErrorIs(t, m.Unlock(ended), context.Canceled) // it goes on in the background
		require.ErrorIs(t, <-leaves, context.Canceled)
		require.NoError(t, <-stays)
		require.NoError(t, m.Unlock(t.Context()))
	})
}

func TestMutex_ofWhatIsNotValidSaysSoInEachMethod(t *testing.T) {
	for want, of := range map[string]func(*locker.Client) *locker.Mutex{
		"empty":           func(c *locker.Client) *locker.Mutex { return c.Mutex("") },
		"not UTF-8":       func(c *locker.Client) *locker.Mutex { return c.Mutex("caf\xe9") },
		"TTL 0s":          func(c *locker.Client) *locker.Mutex { return c.Mutex("x", locker.WithTTL(0)) },
		"nil MutexOption": func(c *locker.Client) *locker.Mutex { return c.Mutex("x", nil) },
		"backoff":         func(c *locker.Client) *locker.Mutex { return c.Mutex("x", locker.WithBackoff(2, 1)) },
	} {
		bubble(t, func(t *testing.T, b *backend) { eachMethodFails(t, b, of(b.client(t)), want) })
	}
}

func eachMethodFails(t *testing.T, b *backend, m *locker.Mutex, want string) {
	t.Helper()
	for method, call := range map[string]func(context.Context) error{
		"lock": m.Lock, "trylock": m.TryLock, "unlock": m.Unlock, "extend": m.Extend,
	} {
		err := call(t.Context())
		require.ErrorContains(t, err, want)
		var e *locker.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, method, e.Op)
	}
	h, err := m.Acquire(t.Context())
	assert.Nil(t, h)
	require.ErrorContains(t, err, want)
	h, err = m.TryAcquire(t.Context())
	assert.Nil(t, h)
	require.ErrorContains(t, err, want)
	require.ErrorContains(t, m.Do(t.Context(), nil), want)
	assert.Zero(t, m.FencingToken())
	assert.Nil(t, m.Hold())
	assert.Empty(t, b.sent)
}
