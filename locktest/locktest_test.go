package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	ttl   = 30 * time.Second
	drift = ttl/100 + 2*time.Millisecond
)

// failing is a test that records how it fails, and ends when the test that it stands in does.
type failing struct {
	testing.TB
	cleanups []func()
	errors   []string
}

func (f *failing) Errorf(format string, args ...any) {
	f.errors = append(f.errors, fmt.Sprintf(format, args...))
}

func (f *failing) Cleanup(c func()) { f.cleanups = append(f.cleanups, c) }

func (f *failing) end() {
	for _, c := range slices.Backward(f.cleanups) {
		c()
	}
}

func TestNew_failsForEachHoldThatIsLeaked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		end := func(how func(*locktest.Client)) []string {
			f := &failing{TB: t}
			how(locktest.New(f))
			f.end()
			return f.errors
		}
		leaks := end(func(c *locktest.Client) {
			require.NoError(t, c.Mutex("orders/42").Lock(ctx))
			_, err := c.RWMutex("stock").RAcquire(ctx)
			require.NoError(t, err)
		})
		require.Len(t, leaks, 2)
		assert.Regexp(t, `the lock "orders/42" is still held at the end of the test, taken at .*/locktest_test.go:\d+$`, leaks[0])
		assert.Contains(t, leaks[1], `"stock"`)

		for name, how := range map[string]func(*locktest.Client){
			"unlocked": func(c *locktest.Client) {
				m := c.Mutex("x")
				require.NoError(t, m.Lock(ctx))
				require.NoError(t, m.Unlock(ctx))
			},
			"unlocked in the background": func(c *locktest.Client) {
				m := c.Mutex("x")
				require.NoError(t, m.Lock(ctx))
				over, cancel := context.WithCancel(ctx)
				cancel()
				require.ErrorIs(t, m.Unlock(over), context.Canceled)
			},
			"unlocked in an outage": func(c *locktest.Client) {
				m := c.Mutex("x")
				require.NoError(t, m.Lock(ctx))
				c.Down()
				require.ErrorIs(t, m.Unlock(ctx), locktest.ErrUnreachable)
			},
			"abandoned": func(c *locktest.Client) {
				h, err := c.Mutex("x").Acquire(ctx)
				require.NoError(t, err)
				require.NoError(t, h.Abandon())
			},
			"lost": func(c *locktest.Client) {
				require.NoError(t, c.Mutex("x").Lock(ctx))
				c.Lose("x")
			},
			"expired": func(c *locktest.Client) {
				m := c.Mutex("x", locker.WithoutRenewal())
				require.NoError(t, m.Lock(ctx))
				<-m.Hold().Lost()
			},
			"closed": func(c *locktest.Client) {
				require.NoError(t, c.Mutex("x").Lock(ctx))
				require.NoError(t, c.Close())
			},
			"of another": func(c *locktest.Client) { c.HoldAsOther("x") },
			"not granted": func(c *locktest.Client) {
				c.HoldAsOther("x")
				require.ErrorIs(t, c.Mutex("x").TryLock(ctx), locker.ErrHeld)
				go func() { _ = c.Mutex("x").Lock(ctx) }()
				synctest.Wait() // it waits
			},
		} {
			assert.Empty(t, end(how), name)
			time.Sleep(2 * ttl) // abandoned locks expire
		}
	})
}

func TestLose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, other := locktest.New(t, locker.WithPrefix("a:b")), locktest.New(t, locker.WithPrefix("a:b"))
		began := time.Now()
		var granted time.Time
		waits := testwait.Go(func() error {
			time.Sleep(time.Second)
			m := other.Mutex("x")
			err := m.Lock(t.Context())
			granted = time.Now()
			return errors.Join(err, m.Unlock(t.Context()))
		})
		err := c.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
			time.Sleep(5 * time.Second)
			c.Lose("x")
			require.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
			return context.Cause(ctx)
		})
		require.ErrorIs(t, err, locker.ErrLost)
		require.NoError(t, <-waits)
		assert.Equal(t, began.Add(5*time.Second), granted, "a waiter has it at once")

		share, err := c.RWMutex("x").RAcquire(t.Context())
		require.NoError(t, err)
		far, err := other.RWMutex("x").RAcquire(t.Context())
		require.NoError(t, err)
		c.Lose("x")
		require.ErrorIs(t, share.Unlock(t.Context()), locker.ErrLost)
		require.NoError(t, far.Err(), "it hears of it at its renewal")
		time.Sleep(ttl / 3)
		require.ErrorIs(t, far.Unlock(t.Context()), locker.ErrLost)

		f := &failing{TB: t}
		missing := locktest.New(f)
		missing.Lose("x")
		f.end()
		assert.Equal(t, []string{`locktest: Lose("x"): the lock is not held`}, f.errors)
	})
}

func TestHoldAsOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.New(t, locker.WithoutRenewal())
		m, began := c.Mutex("x"), time.Now()
		release := c.HoldAsOther("x")
		err := m.TryLock(t.Context())
		require.ErrorContains(t, err, `held by another owner, "another process"`)
		time.AfterFunc(time.Hour, release)
		require.NoError(t, m.Lock(t.Context()))
		assert.Equal(t, time.Hour, time.Since(began), "it does not expire, and the release wakes a waiter")
		release()
		require.NoError(t, m.Unlock(t.Context()), "another release changes nothing")

		f := &failing{TB: t}
		taken := locktest.New(f)
		taken.HoldAsOther("x")
		taken.HoldAsOther("x")
		f.end()
		assert.Equal(t, []string{`locktest: HoldAsOther("x"): the lock is held by another owner, "another process"`}, f.errors)
		require.NoError(t, m.TryLock(t.Context()), "the end of the test releases it")
		require.NoError(t, m.Unlock(t.Context()))
	})
}

func TestDownAndHang_loseAHoldAtItsDeadlineAndUpInTimeSavesIt(t *testing.T) {
	for name, fail := range map[string]func(*locktest.Client){"down": (*locktest.Client).Down, "hang": (*locktest.Client).Hang} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, beside := locktest.New(t), locktest.New(t)
				m := c.Mutex("x")
				require.NoError(t, m.Lock(t.Context()))
				fail(c)
				time.Sleep(ttl - drift - ttl/12)
				c.Up()
				time.Sleep(ttl)
				require.NoError(t, m.Unlock(t.Context()), "it was renewed after the outage")

				require.NoError(t, m.Lock(t.Context()))
				began := time.Now()
				fail(c)
				<-m.Hold().Lost()
				assert.Equal(t, ttl-drift, time.Since(began))
				require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
				m2 := beside.Mutex("x")
				require.NoError(t, m2.Lock(t.Context()), "the outage is that of one Client")
				assert.Equal(t, ttl, time.Since(began), "the backend counts the whole TTL")
				require.NoError(t, m2.Unlock(t.Context()))
				_, err := c.Inspect(t.Context(), "x")
				require.Error(t, err)
				require.NotErrorIs(t, err, locker.ErrHeld)
				c.Up()
				require.NoError(t, m.TryLock(t.Context()))
				require.NoError(t, m.Unlock(t.Context()))
			})
		})
	}
}

func TestSlow_eachRequestTakesThatLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.New(t)
		m, began := c.Mutex("x"), time.Now()
		c.Slow(2 * time.Second)
		require.NoError(t, m.Lock(t.Context()))
		assert.Equal(t, 2*time.Second, time.Since(began))
		assert.Equal(t, began.Add(ttl-drift), m.Hold().Deadline(), "it counts from before the request")
		require.NoError(t, m.Unlock(t.Context()))
		assert.Equal(t, 4*time.Second, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, m.Lock(ctx), context.DeadlineExceeded)
		assert.Equal(t, 5*time.Second, time.Since(began))
		c.Slow(0)
		began = time.Now()
		require.NoError(t, m.TryLock(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
		assert.Equal(t, began, time.Now())
	})
}

func TestFailNext_concernsThatManyRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.New(t)
		m, first, second := c.Mutex("x"), errors.New("first"), errors.New("second")
		c.FailNext(first)
		c.FailNext(second)
		for i, want := range []error{first, second, nil} {
			_, err := c.Inspect(t.Context(), "x")
			require.ErrorIs(t, err, want, "%d", i)
		}
		c.FailNext(first)
		require.ErrorIs(t, m.TryLock(t.Context()), first)
		require.NoError(t, m.TryLock(t.Context()))
		c.FailNext(locker.ErrLost)
		require.ErrorIs(t, m.Extend(t.Context()), locker.ErrLost)
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		var names []string
		c.FailNext(second)
		for name, err := range c.List(t.Context(), "") {
			names = append(names, fmt.Sprint(name, err))
		}
		assert.Contains(t, strings.Join(names, " "), "second")
	})
}
