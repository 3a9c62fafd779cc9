package core_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

func goroutines() int { return runtime.NumGoroutine() }

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

func TestMutex_isNotReentrant(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.locked(t, "x")
		require.ErrorIs(t, m.TryLock(t.Context()), locker.ErrHeld)
		require.ErrorIs(t, m.Lock(ending(t, time.Second)), locker.ErrHeld)
		assert.EqualValues(t, 1, m.FencingToken())
		require.NoError(t, m.Unlock(t.Context()))
	})
}

func TestMutex_ofOneNameContendWithinAClient(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		require.NoError(t, c.Mutex("x").Lock(t.Context()))
		require.ErrorIs(t, c.Mutex("x").TryLock(t.Context()), locker.ErrHeld)
		require.NoError(t, c.Mutex("y").TryLock(t.Context()))
	})
}

func TestMutex_handsOverBetweenItsGoroutines(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m, inside := b.client(t).Mutex("x"), 0
		var all []<-chan error
		for range 20 {
			all = append(all, inBackground(func() error {
				if err := m.Lock(t.Context()); err != nil {
					return err
				}
				inside++
				time.Sleep(time.Second)
				assert.Equal(t, 1, inside)
				inside--
				return m.Unlock(t.Context())
			}))
		}
		for _, err := range all {
			require.NoError(t, <-err)
		}
		assert.Zero(t, b.holder("x"))
		assert.Zero(t, m.FencingToken())
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

func TestMutex_withABadNameSaysSoInEachMethod(t *testing.T) {
	for name, want := range map[string]string{"": "empty", "caf\xe9": "not UTF-8"} {
		bubble(t, func(t *testing.T, b *backend) {
			eachMethodFails(t, b, b.client(t).Mutex(name), want)
		})
	}
}

func TestMutex_withABadOptionSaysSoInEachMethod(t *testing.T) {
	for want, o := range map[string]locker.MutexOption{
		"TTL 0s": locker.WithTTL(0), "nil MutexOption": nil, "backoff": locker.WithBackoff(2, 1),
	} {
		bubble(t, func(t *testing.T, b *backend) {
			eachMethodFails(t, b, b.client(t).Mutex("x", o), want)
		})
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

func TestMutex_takesOddNames(t *testing.T) {
	names := []string{
		"x", "X", "x ", " ", "x/y", "x//y", "/", "{x}", "x\n", "\x00", ":", "a:b", "%3A", "é", "e\u0301",
		strings.Repeat("n", 4096),
	}
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		for _, name := range names {
			m := c.Mutex(name)
			require.NoError(t, m.TryLock(t.Context()), "%q must not collide with another", name)
			assert.Equal(t, name, m.Name())
		}
	})
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

func TestError_showsTheBeginningOfALongName(t *testing.T) {
	for _, name := range []string{strings.Repeat("n", 4096), strings.Repeat("é", 2048), strings.Repeat("長", 2048)} {
		text := (&locker.Error{Op: "lock", Name: name, Err: errRefused}).Error()
		assert.Less(t, len(text), 400)
		assert.True(t, utf8.ValidString(text))
		assert.True(t, strings.HasSuffix(text, ": connection refused"))
		assert.Contains(t, text, "…")
	}
	short := strings.Repeat("長", 50)
	assert.NotContains(t, (&locker.Error{Op: "lock", Name: short, Err: errRefused}).Error(), short+`"…`,
		"nothing was left out")
}

func TestErrors_areToldApart(t *testing.T) {
	all := []error{locker.ErrHeld, locker.ErrNotHeld, locker.ErrLost, locker.ErrClosed, locker.ErrUnsupported}
	for i, a := range all {
		for j, b := range all {
			assert.Equal(t, i == j, errors.Is(a, b))
		}
	}
}
