package multi_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/locktest"
	_ "github.com/go-locker/locker/memory"
	"github.com/go-locker/locker/multi"
)

const (
	ttl   = 30 * time.Second // the default
	drift = 302 * time.Millisecond
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// wantFree fails unless each name can be taken now. Within a bubble.
func wantFree(t *testing.T, names ...string) {
	t.Helper()
	synctest.Wait() // for what is done in the background
	c := locktest.New(t)
	for _, name := range names {
		h, err := c.Mutex(name).TryAcquire(t.Context())
		require.NoError(t, err, name)
		require.NoError(t, h.Unlock(t.Context()))
	}
}

func wantHeld(t *testing.T, names ...string) {
	t.Helper()
	c := locktest.New(t)
	for _, name := range names {
		require.ErrorIs(t, c.Mutex(name).TryLock(t.Context()), locker.ErrHeld, name)
	}
}

// steps is an Option that notes what is taken and released, in order.
func steps(into *[]string) locker.Option {
	return locker.WithObserver(locker.Observer{Done: func(_ context.Context, c locker.Call, _ locker.Result) {
		*into = append(*into, c.Op+" "+c.Name)
	}})
}

func TestAcquire_takesInOneOrderWithoutDuplicatesAndReleasesInReverse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		h, err := multi.New(locktest.New(t, steps(&seen)).Client, []string{"b", "c", "a", "b"}).Acquire(t.Context())
		require.NoError(t, err)
		wantHeld(t, "a", "b", "c")
		require.NoError(t, h.Unlock(t.Context()))
		assert.Equal(t, []string{"lock a", "lock b", "lock c", "unlock c", "unlock b", "unlock a"}, seen)
		require.ErrorIs(t, h.Unlock(t.Context()), locker.ErrNotHeld)
	})
}

// Programs that name the same locks in different orders wait for each other in one direction alone.
func TestAcquire_inOppositeOrdersEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var inside int
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, names := range [][]string{{"a", "b"}, {"b", "a"}, {"b", "c"}, {"c", "a"}} {
			m := multi.New(locktest.New(t).Client, names)
			all.Go(func() {
				for range 50 {
					assert.NoError(t, m.Do(t.Context(), func(context.Context, *multi.Hold) error {
						mu.Lock()
						inside++
						assert.Equal(t, 1, inside, "any two of them have a name in common")
						mu.Unlock()
						time.Sleep(time.Millisecond)
						mu.Lock()
						inside--
						mu.Unlock()
						return nil
					}))
				}
			})
		}
		began := time.Now()
		all.Wait()
		assert.Equal(t, 200*time.Millisecond, time.Since(began), "nobody waited for an expiry")
	})
}

func TestAcquire_cancelledHalfWayLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other, err := locktest.New(t).Mutex("b").Acquire(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithCancelCause(t.Context())
		done := testwait.Go(func() error {
			_, err := multi.New(locktest.New(t).Client, []string{"a", "b", "c"}).Acquire(ctx)
			return err
		})
		synctest.Wait()
		wantHeld(t, "a")
		why := errors.New("a reason")
		cancel(why)
		err = <-done
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, why)
		require.ErrorIs(t, err, locker.ErrHeld)
		wantFree(t, "a", "c")
		require.NoError(t, other.Unlock(t.Context()))
		wantFree(t, "b")
	})
}

func TestAcquire_renewsWhatItHasWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other, err := locktest.New(t).Mutex("b").Acquire(t.Context())
		require.NoError(t, err)
		done := testwait.Go(func() error {
			h, err := multi.New(locktest.New(t).Client, []string{"a", "b"}).Acquire(t.Context())
			if err != nil {
				return err
			}
			assert.Greater(t, time.Until(h.Deadline()), ttl/2)
			return errors.Join(h.Err(), h.Unlock(t.Context()))
		})
		for range 20 {
			time.Sleep(ttl / 4)
			wantHeld(t, "a")
		}
		require.NoError(t, other.Unlock(t.Context()))
		require.NoError(t, <-done)
		wantFree(t, "a", "b")
	})
}

// What is lost while the rest is awaited is no reason to hold half of it.
func TestAcquire_beginsAnewAfterALossWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		other, err := locktest.New(t).Mutex("b").Acquire(t.Context())
		require.NoError(t, err)
		var seen []string
		mine := locktest.New(t, steps(&seen), locker.WithoutRenewal())
		done := testwait.Go(func() error {
			h, err := multi.New(mine.Client, []string{"a", "b"}).Acquire(t.Context())
			if err != nil {
				return err
			}
			return errors.Join(h.Err(), h.Unlock(t.Context()))
		})
		time.Sleep(ttl + time.Second) // "a" has expired, and was taken again
		require.NoError(t, other.Unlock(t.Context()))
		require.NoError(t, <-done)
		assert.Equal(t, []string{"lock a", "lock b", "unlock a", "lock a", "lock b", "unlock b", "unlock a"}, seen)
	})
}

func TestHold_oneLossEndsAllAndTheEarliestDeadlineCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.New(t)
		m := multi.New(c.Client, []string{"a", "b"}, locker.WithoutRenewal())
		other, err := locktest.New(t).Mutex("b").Acquire(t.Context())
		require.NoError(t, err)
		granted := make(chan *multi.Hold)
		began := time.Now()
		go func() {
			h, err := m.Acquire(t.Context())
			assert.NoError(t, err)
			granted <- h
		}()
		time.Sleep(3 * time.Second) // "a" is three seconds older than "b"
		require.NoError(t, other.Unlock(t.Context()))
		h := <-granted
		expires := began.Add(ttl - drift)
		assert.Equal(t, expires, h.Deadline())

		ctx, cancel := h.Context(t.Context(), 0)
		defer cancel()
		early, cancelEarly := h.Context(t.Context(), 2*time.Second)
		defer cancelEarly()
		<-early.Done()
		assert.Equal(t, expires.Add(-2*time.Second), time.Now())
		require.NoError(t, h.Err())
		<-ctx.Done()
		assert.Equal(t, expires, time.Now())
		require.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
		require.ErrorIs(t, h.Err(), locker.ErrLost)
		wantHeld(t, "b")
		require.ErrorIs(t, h.Unlock(t.Context()), locker.ErrLost)
		wantFree(t, "a", "b")
	})
}

// many returns n names.
func many(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprint("name/", i))
	}
	return names
}

// held is a hold of names, and a context of it.
func held(t *testing.T, c *locktest.Client, names ...string) (*multi.Hold, context.Context) {
	t.Helper()
	h, err := multi.New(c.Client, names).Acquire(t.Context())
	require.NoError(t, err)
	ctx, cancel := h.Context(t.Context(), 0)
	t.Cleanup(cancel)
	return h, ctx
}

// As a hold of one lock does.
func TestUnlock_withAContextOfTheHoldEndsThatLast(t *testing.T) {
	for _, n := range []int{2, 20} {
		synctest.Test(t, func(t *testing.T) {
			c := locktest.New(t)
			names := many(n)
			h, ctx := held(t, c, names...)
			ctx, stop := context.WithTimeout(ctx, 5*time.Second) // 20 are released at once
			defer stop()
			c.Slow(time.Second)
			require.NoError(t, h.Unlock(ctx))
			require.ErrorIs(t, context.Cause(ctx), locker.ErrNotHeld)
			c.Slow(0)
			wantFree(t, names...)

			h, ctx = held(t, c, names...)
			ctx, stop = context.WithTimeout(ctx, time.Second)
			defer stop()
			began := time.Now()
			c.Hang()
			require.ErrorIs(t, h.Unlock(ctx), context.DeadlineExceeded)
			assert.Equal(t, time.Second, time.Since(began))
			c.Up()
			time.Sleep(ttl)
			wantFree(t, names...)
		})
	}
}

// An Observer may keep the context of a call, and unlock another hold with it.
func TestUnlock_contextThatIsKeptHoldsNothingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var kept context.Context
		c := locktest.New(t, locker.WithObserver(locker.Observer{Done: func(ctx context.Context, _ locker.Call, _ locker.Result) {
			kept = ctx //nolint:fatcontext // of the latest call
		}}))
		for _, own := range []bool{false, true} {
			outer, err := c.Mutex("outer").Acquire(t.Context())
			require.NoError(t, err)
			ctx, cancel := outer.Context(t.Context(), 0)
			h, err := multi.New(c.Client, []string{"a"}).Acquire(ctx)
			require.NoError(t, err)
			unlocking, done := h.Context(ctx, 0)
			if !own {
				unlocking = ctx
			}
			require.NoError(t, h.Unlock(unlocking))
			assert.Equal(t, own, outer.Unlock(kept) != nil, "it has ended if it was of h")
			require.ErrorIs(t, context.Cause(ctx), locker.ErrNotHeld)
			done()
			cancel()
		}
	})
}

// A second Unlock finds nothing to release, and ends no context under the first.
func TestUnlock_withAContextOfTheHoldIsNotDisturbedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.New(t)
		h, ctx := held(t, c, "a", "b")
		c.Slow(time.Second)
		first := testwait.Go(func() error { return h.Unlock(ctx) })
		time.Sleep(1500 * time.Millisecond) // "b" is released, "a" not yet
		require.ErrorIs(t, h.Unlock(ctx), locker.ErrNotHeld)
		require.NoError(t, ctx.Err(), "the first goes on")
		require.NoError(t, <-first)
		require.ErrorIs(t, context.Cause(ctx), locker.ErrNotHeld)
	})
}

// AtLeast keeps each lock by an extension, for which the context must last.
func TestUnlock_withAContextOfTheHoldKeepsAtLeast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.New(t, locker.AtLeast(time.Minute))
		h, ctx := held(t, c, "a", "b")
		require.NoError(t, h.Unlock(ctx))
		require.ErrorIs(t, context.Cause(ctx), locker.ErrNotHeld)
		wantHeld(t, "a", "b")
	})
}

// asked counts how often a context was asked whether it has ended.
type asked struct {
	context.Context
	times *atomic.Int64
}

func (a asked) Err() error { a.times.Add(1); return a.Context.Err() }

// If each release looked at the clocks of all holds, 10,000 names would take a minute.
func TestUnlock_withAContextOfManyHoldsLooksAtFewClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, ctx := held(t, locktest.New(t), many(100)...)
		times := new(atomic.Int64)
		require.NoError(t, h.Unlock(asked{ctx, times}))
		assert.Less(t, times.Load(), int64(10))
	})
}

func TestDo_releasesAfterAPanicAndReturnsTheFunctionsError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := multi.New(locktest.New(t).Client, []string{"a", "b"})
		assert.PanicsWithValue(t, "no", func() {
			_ = m.Do(t.Context(), func(context.Context, *multi.Hold) error { panic("no") })
		})
		wantFree(t, "a", "b")
		failed := errors.New("failed")
		ctx, cancel := context.WithCancel(t.Context())
		err := m.Do(ctx, func(context.Context, *multi.Hold) error { cancel(); return failed })
		require.ErrorIs(t, err, failed)
		require.NotErrorIs(t, err, locker.ErrLost, "it unlocks though its context has ended")
		wantFree(t, "a", "b")
	})
}

func TestDo_tellsOfEachLossOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var loss error
		err := multi.New(locktest.New(t).Client, []string{"a", "b"}, locker.WithoutRenewal()).Do(t.Context(), func(ctx context.Context, _ *multi.Hold) error {
			<-ctx.Done()
			loss = context.Cause(ctx)
			return loss
		})
		require.ErrorIs(t, err, locker.ErrLost)
		require.ErrorIs(t, loss, locker.ErrLost)
		assert.Equal(t, 2, strings.Count(err.Error(), loss.Error()), "%v", err)
		for _, name := range []string{"a", "b"} {
			assert.Equal(t, 1, strings.Count(err.Error(), `unlock "`+name+`"`), "%v", err)
		}
	})
}

// A request to take, one to release, and as many allocations for each name, however many there are.
func TestDo_costsTheSameForEachName(t *testing.T) {
	cost := func(n int) (calls, goroutines int, allocations float64) {
		var counted atomic.Int64
		c, err := locker.Open(t.Context(), "mem://"+t.Name(), locker.WithObserver(locker.Observer{
			Done: func(context.Context, locker.Call, locker.Result) { counted.Add(1) },
		}))
		require.NoError(t, err)
		defer c.Close()
		names := many(n)
		m := multi.New(c, names)
		before := runtime.NumGoroutine()
		do := func() {
			require.NoError(t, m.Do(t.Context(), func(context.Context, *multi.Hold) error {
				goroutines = max(goroutines, runtime.NumGoroutine()-before)
				return nil
			}))
		}
		allocations = testing.AllocsPerRun(1, do) // which calls it twice
		return int(counted.Load()) / 2 / n, goroutines, allocations / float64(n)
	}
	calls, goroutines, few := cost(10)
	assert.Equal(t, 2, calls)
	assert.LessOrEqual(t, goroutines, 1, "the Observer's")
	calls, goroutines, many := cost(1000)
	assert.Equal(t, 2, calls)
	assert.LessOrEqual(t, goroutines, 1)
	assert.Less(t, many, 1.5*few, "allocations for each name")
}

// Whoever looks at the context at the deadline must not go on, though no timer may have fired yet.
func TestContext_hasEndedAtTheDeadline(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			c := locktest.New(t)
			h, err := multi.New(c.Client, []string{"a", "b"}, locker.WithoutRenewal()).Acquire(t.Context())
			require.NoError(t, err)
			ctx, cancel := h.Context(t.Context(), 0)
			defer cancel()
			time.Sleep(time.Until(h.Deadline()))
			require.Error(t, ctx.Err())
			require.ErrorIs(t, context.Cause(ctx), locker.ErrLost)
		})
	}
}

func TestDo_sharesEachOfItsLocksWithJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.New(t)
		require.NoError(t, multi.New(c.Client, []string{"a", "b"}).Do(t.Context(), func(ctx context.Context, all *multi.Hold) error {
			for _, name := range []string{"a", "b"} {
				require.NoError(t, c.Mutex(name).Join(ctx, func(_ context.Context, h *locker.Hold) error {
					assert.Equal(t, all.Token(name), h.Token())
					return nil
				}))
			}
			return all.Err()
		}))
	})
}

func TestNew_ofWhatIsNotValidTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.New(t)
		for what, m := range map[string]*multi.Mutex{
			"no names":      multi.New(c.Client, nil),
			"an empty name": multi.New(c.Client, []string{"a", ""}),
			"not UTF-8":     multi.New(c.Client, []string{"a", "\xff"}),
			"an option":     multi.New(c.Client, []string{"a"}, nil),
		} {
			_, err := m.Acquire(t.Context())
			require.Error(t, err, what)
			_, err = m.TryAcquire(t.Context())
			require.Error(t, err, what)
			require.Error(t, m.Do(t.Context(), func(context.Context, *multi.Hold) error { panic("called") }), what)
		}
		wantFree(t, "a")
		require.NoError(t, c.Close())
		_, err := multi.New(c.Client, []string{"a", "b"}).Acquire(t.Context())
		require.ErrorIs(t, err, locker.ErrClosed)
	})
}

func ExampleNew() {
	ctx := context.Background()
	client, err := locker.Open(ctx, "mem://example-multi")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	// Another program may name them the other way round.
	m := multi.New(client, []string{"account/9", "account/7"})
	err = m.Do(ctx, func(ctx context.Context, h *multi.Hold) error {
		fmt.Println("both are held:", h.Token("account/7") > 0 && h.Token("account/9") > 0)
		return client.Mutex("account/7").TryLock(ctx)
	})
	fmt.Println(err)
	// Output:
	// both are held: true
	// locker: trylock "account/7": the lock is held by another owner
}
