package core_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"

	"github.com/go-locker/locker/internal/test/testwait"
)

var errWork = errors.New("work failed")

func TestDo_joinsTheErrorsOfFAndUnlock(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.client(t).Mutex("x")
		fail := func(context.Context) error { return errWork }
		require.ErrorIs(t, m.Do(t.Context(), fail), errWork)
		assert.Zero(t, b.holder("x"))

		b.every(release, unreachable)
		err := m.Do(t.Context(), fail)
		require.ErrorIs(t, err, errWork)
		require.ErrorIs(t, err, errRefused)
	})
}

// A panic goes on, and so does the end of the goroutine.
func TestDo_unlocksHoweverFEnds(t *testing.T) {
	for value, end := range map[any]func(){"oops": func() { panic("oops") }, nil: runtime.Goexit} {
		bubble(t, func(t *testing.T, b *backend) {
			m, recovered := b.client(t).Mutex("x"), make(chan any, 1)
			go func() {
				defer func() { recovered <- recover() }()
				_ = m.Do(t.Context(), func(context.Context) error { end(); return nil })
				t.Error("it goes on")
			}()
			assert.Equal(t, value, <-recovered)
			assert.Zero(t, b.holder("x"))
			require.NoError(t, m.TryLock(t.Context()))
		})
	}
}

func TestLock_afterAPanicOfTheDriver(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		tries := 0
		m := clientOf(t, scripted(b, func(ctx context.Context, l *lease) (time.Duration, error) {
			if tries++; tries == 1 {
				panic("oops")
			}
			return l.Ask(ctx)
		})).Mutex("x")
		assert.PanicsWithValue(t, "oops", func() { _ = m.Lock(t.Context()) })
		require.NoError(t, m.TryLock(t.Context()), "nobody has the turn")
	})
}

func TestDo_thatOutlivesTheLockIsToldAndWaitedFor(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.client(t).Mutex("x")
		b.every(extend, hangIgnoringCtx)
		returned := false
		err := m.Do(t.Context(), func(ctx context.Context) error {
			<-ctx.Done()
			assert.Equal(t, life, time.Since(b.start), "no later than the deadline")
			require.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
			assert.Zero(t, m.FencingToken())
			time.Sleep(time.Minute)
			returned = true
			return nil
		})
		require.ErrorIs(t, err, locker.ErrLost, "nil never hides a loss")
		assert.True(t, returned)
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrNotHeld)
	})
}

func TestDo_tellsOfALossOnceAndWhy(t *testing.T) {
	each(t, map[string]func(*backend, *locker.Client){
		"it was not extended in time": func(*backend, *locker.Client) {},
		"it had ended at the backend": func(b *backend, c *locker.Client) { b.steal("x"); time.Sleep(ttl) },
		"the client is closed":        func(_ *backend, c *locker.Client) { go func() { _ = c.Close() }() },
	}, func(t *testing.T, b *backend, lose func(*backend, *locker.Client)) {
		_, why, _ := strings.Cut(t.Name(), "/")
		why = "the lock was lost: " + strings.ReplaceAll(why, "_", " ")
		if why == "the lock was lost: it was not extended in time" {
			b.every(extend, unreachable)
		}
		c := b.client(t)
		err := c.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
			lose(b, c)
			<-ctx.Done()
			require.EqualError(t, context.Cause(ctx), why)
			return fmt.Errorf("page 7: %w", errors.Join(errWork, context.Cause(ctx)))
		})
		require.EqualError(t, err, `locker: unlock "x": page 7: `+errWork.Error()+"\n"+why)
		require.ErrorIs(t, err, locker.ErrLost)
		require.ErrorIs(t, err, errWork)
	})
}

func TestDo_whenTheCallersContextEnds(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		ctx := ending(t, 3*ttl)
		err := b.client(t).Mutex("x").Do(ctx, func(inner context.Context) error {
			<-inner.Done()
			assert.NotZero(t, b.holder("x"), "held until f returns")
			time.Sleep(3 * ttl)
			assert.NotZero(t, b.holder("x"))
			assert.Equal(t, errShutdown, context.Cause(inner))
			return inner.Err()
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, locker.ErrLost)
		assert.Zero(t, b.holder("x"), "released although ctx had ended")
		assert.Len(t, b.calls(release), 1)
	})
}

func TestDo_whoseFunctionUnlocks(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.client(t).Mutex("x")
		err := m.Do(t.Context(), func(context.Context) error {
			require.NoError(t, m.Unlock(t.Context()))
			return m.Lock(t.Context()) // another goroutine, say
		})
		require.ErrorIs(t, err, locker.ErrNotHeld)
		assert.NotZero(t, m.FencingToken(), "the hold of the other is left alone")
		assert.Equal(t, m.FencingToken(), b.holder("x"))
		require.NoError(t, m.Unlock(t.Context()))
	})
}

func TestTryDo_runsUnderTheLockOrNotAtAll(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m, other := b.client(t).Mutex("x"), b.client(t).Mutex("x")
		ran, err := m.TryDo(t.Context(), func(ctx context.Context) error {
			assert.Equal(t, m.FencingToken(), b.holder("x"))
			assert.Zero(t, took(func() {
				ran, err := other.TryDo(ctx, func(context.Context) error { panic("f ran") })
				require.NoError(t, err, "nothing has failed")
				assert.False(t, ran)
			}))
			time.Sleep(3 * ttl)
			return errors.Join(ctx.Err(), errWork)
		})
		assert.True(t, ran)
		require.ErrorIs(t, err, errWork)
		require.NotErrorIs(t, err, context.Canceled)
		assert.Zero(t, b.holder("x"))

		ran, err = other.TryDo(t.Context(), func(ctx context.Context) error {
			return other.TryLock(ctx)
		})
		assert.True(t, ran)
		require.ErrorIs(t, err, locker.ErrHeld, "the job's own failure")

		b.down(unreachable)
		ran, err = other.TryDo(t.Context(), func(context.Context) error { panic("f ran") })
		assert.False(t, ran)
		require.ErrorIs(t, err, errRefused)
	})
}

// Five machines start a short job, one after the other as their clocks are late.
func TestAtLeast_theJobRunsOnce(t *testing.T) {
	const granted = 10 * time.Millisecond
	each := func(ends, fails bool) {
		bubble(t, func(t *testing.T, b *backend) {
			started := 0
			b.next(acquire, fault{request: granted})
			for range 5 {
				c := testwait.Closed(locker.New(&fakeDriver{b: b}, locker.AtLeast(time.Minute)))(t)
				ran, err := c.Mutex("x").TryDo(t.Context(), func(context.Context) error {
					started++
					time.Sleep(20 * time.Millisecond)
					if fails {
						return errWork
					}
					return nil
				})
				assert.Equal(t, started == 1 && fails && ran, err != nil, err)
				if ends {
					require.NoError(t, c.Close())
				}
				time.Sleep(100 * time.Millisecond)
			}
			assert.Equal(t, 1, started)
			assert.Len(t, b.calls(extend), 1, "it is confirmed that the hold lasted")
			time.Sleep(granted + time.Minute - time.Since(b.start) - time.Millisecond)
			assert.NotZero(t, b.holder("x"))
			assert.Empty(t, b.calls(release))
			time.Sleep(2 * time.Millisecond)
			if !ends {
				assert.Zero(t, b.holder("x"), "released on time, though the lease goes on")
			}
			time.Sleep(time.Second + granted + 20*time.Millisecond)
			assert.Zero(t, b.holder("x"), "one TTL, which is in whole seconds, after the Unlock")
		})
	}
	for _, ends := range []bool{false, true} {
		each(ends, false)
		each(ends, true)
	}
}

func TestAtLeast_aLongJobReleasesAtItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.client(t).Mutex("x", locker.AtLeast(time.Second))
		require.NoError(t, m.Do(t.Context(), func(context.Context) error { time.Sleep(time.Second); return nil }))
		assert.Zero(t, b.holder("x"))
		assert.Empty(t, b.calls(extend))
	})
}

func TestAtLeast_closeLeavesAHoldUnderWork(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		_, err := c.Mutex("x", locker.AtLeast(time.Minute)).Acquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, c.Close())
		assert.NotZero(t, b.holder("x"))
		assert.Empty(t, b.calls(release))
	})
}

// What the Unlock cannot confirm it tells, and the lock stays taken all the same.
func TestAtLeast_tellsOfALoss(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.client(t).Mutex("x", locker.AtLeast(time.Minute))
		ran, err := m.TryDo(t.Context(), func(context.Context) error { b.next(extend, unreachable); return nil })
		assert.True(t, ran)
		require.ErrorIs(t, err, errRefused)
		assert.NotZero(t, b.holder("x"))
		b.free("x")
		ran, err = m.TryDo(t.Context(), func(context.Context) error { b.steal("x"); return nil })
		assert.True(t, ran)
		require.ErrorIs(t, err, locker.ErrLost)
	})
}

// A hold that shares a session begins with what is left of that.
func TestAtLeast_aHoldThatBeginsShortIsExtendedFirst(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		s := &spy{}
		m := b.client(t, s.observer()).Mutex("x", locker.AtLeast(9*time.Second))
		b.next(acquire, fault{age: 4 * time.Second})
		ran, err := m.TryDo(t.Context(), func(context.Context) error {
			assert.Len(t, b.calls(extend), 1)
			return nil
		})
		require.NoError(t, err)
		assert.True(t, ran)
		time.Sleep(9 * time.Second)
		synctest.Wait()

		short := fault{age: 4 * time.Second} // for a session whose latest heartbeat is as old
		b.next(acquire, short)
		b.next(extend, short)
		require.NoError(t, m.TryLock(t.Context()), "the second extension covers it")
		require.NoError(t, m.Unlock(t.Context()))
		time.Sleep(9 * time.Second)
		synctest.Wait()

		for refused, faults := range map[error][]fault{
			errRefused: {unreachable}, locker.ErrUnsupported: {short, short, short},
			locker.ErrLost: {{lost: true, err: locker.ErrLost}},
		} {
			b.next(acquire, short)
			b.next(extend, faults...)
			ran, err = m.TryDo(t.Context(), func(context.Context) error { panic("f ran") })
			require.ErrorIs(t, err, refused)
			assert.False(t, ran)
			synctest.Wait()
			assert.Zero(t, b.holder("x"), "given back")
			assert.Equal(t, s.held, s.ended)
		}
	})
}

func TestAtLeast_thatTheBackendCannotKeep(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		for d, want := range map[time.Duration]error{
			0: errors.New("more than 0"), 900 * time.Millisecond: nil, 59 * time.Second: locker.ErrUnsupported,
		} {
			m := clientOf(t, &fakeDriver{b: b, whole: true}, locker.WithTTL(time.Second)).Mutex("x", locker.AtLeast(d))
			err := m.TryLock(t.Context())
			if want == nil {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, want.Error())
			}
		}
		assert.Len(t, b.sent, 1)
	})
}
