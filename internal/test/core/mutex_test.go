package core_test

import (
	"context"
	"net"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

func TestMutex_beforeLockHasNothing(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.client(t).Mutex("x")
		assert.Equal(t, "x", m.Name())
		assert.Zero(t, m.FencingToken())
		assert.Nil(t, m.Lost())
		assert.True(t, m.Deadline().IsZero())
		assert.Empty(t, b.sent)
	})
}

func TestMutex_waitsForItsOtherGoroutine(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.locked(t, "x")
		second := inBackground(func() error { return m.Lock(t.Context()) })
		time.Sleep(5 * ttl)
		assert.EqualValues(t, 1, m.FencingToken())
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, <-second)
		assert.EqualValues(t, 2, m.FencingToken())
		require.NoError(t, m.Unlock(t.Context()))
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrNotHeld, "each success needs one Unlock, and no more")
	})
}

// Each goroutine rides out TTL/2 of an outage, from when its own call began, not one after another.
func TestMutex_itsGoroutinesRideOutAnOutageTogether(t *testing.T) {
	for name, f := range map[string]fault{
		"hangs": hangs, "heeds no ctx": hangIgnoringCtx,
		"cannot be reached": {lost: true, err: &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *backend) {
				m := b.locked(t, "x")
				lock := func() (took time.Duration) {
					began := time.Now()
					noErrorIs(t, m.Lock(context.Background()), locker.ErrHeld, context.DeadlineExceeded)
					return time.Since(began)
				}
				early, late := make(chan time.Duration, 20), make(chan time.Duration, 20)
				time.Sleep(ttl) // which those who wait for the holder do not count
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
				for range cap(early) {
					assert.InDelta(t, ttl*3/4, <-early, float64(ttl/50), "in a row from ttl/4 on")
				}
				for range cap(late) {
					assert.InDelta(t, ttl/2, <-late, float64(ttl/50))
				}
				b.down(fault{})
				require.NoError(t, m.Lock(t.Context()), "the outage is over")
			})
		})
	}
}

// A failure is no outage that a later goroutine counts, if the lock was held in between.
func TestMutex_anOutageBeforeAHoldDoesNotCount(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.locked(t, "x")
		waits := inBackground(func() error { return m.Lock(context.Background()) })
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
		m := b.locked(t, "x")
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
	assert.Nil(t, m.Lost())
	assert.Empty(t, b.sent)
}

func TestError_saysWhatFailedAndOnWhat(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		b.every(acquire, unreachable)
		err := b.client(t, locker.WithPrefix("app")).Mutex("orders/42").Lock(t.Context())
		var e *locker.Error
		require.ErrorAs(t, err, &e)
		assert.Equal(t, &locker.Error{Op: "lock", Name: "orders/42", Err: errRefused}, e)
		require.EqualError(t, err, `locker: lock "orders/42": connection refused`)
		assert.EqualError(t, &locker.Error{Op: "open", Err: errRefused}, "locker: open: connection refused")
	})
}
