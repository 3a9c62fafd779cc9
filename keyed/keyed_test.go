package keyed_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/keyed"
	"github.com/go-locker/locker/locktest"
	_ "github.com/go-locker/locker/memory"
)

const ttl = 30 * time.Second // the default

func TestLocks_ofOneNameExcludeEachOtherAndThoseOfOthersDoNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		here, there := keyed.New(locktest.New(t).Client), keyed.New(locktest.New(t).Client)
		ctx := t.Context()
		require.NoError(t, here.Lock(ctx, "a"))
		require.NoError(t, here.Lock(ctx, "b"))
		require.ErrorIs(t, here.TryLock(ctx, "a"), locker.ErrHeld, "it is not reentrant")
		require.ErrorIs(t, there.TryLock(ctx, "a"), locker.ErrHeld)
		require.NoError(t, there.TryLock(ctx, "c"))
		first := here.FencingToken("a")
		assert.NotZero(t, first)
		assert.NotEqual(t, first, here.FencingToken("b"))
		assert.Zero(t, there.FencingToken("a"))

		waits := testwait.Go(func() error { return there.Lock(ctx, "a") })
		synctest.Wait()
		require.ErrorIs(t, there.Unlock(ctx, "a"), locker.ErrNotHeld, "it is awaited, and not held")
		require.NoError(t, here.Unlock(ctx, "a"))
		require.NoError(t, <-waits)
		assert.Greater(t, there.FencingToken("a"), first)
		require.ErrorIs(t, here.Unlock(ctx, "a"), locker.ErrNotHeld, "another's hold is not ended")
		require.NoError(t, errors.Join(there.Unlock(ctx, "a"), here.Unlock(ctx, "b"), there.Unlock(ctx, "c")))
		assert.Zero(t, keyed.InUse(here)+keyed.InUse(there), "what is not held costs nothing")
	})
}

func TestLock_thatFailsKeepsNothingAndLetsTheNextContend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.New(t)
		l, other, ctx := keyed.New(c.Client), keyed.New(locktest.New(t).Client), t.Context()
		require.Error(t, l.Lock(ctx, ""))
		require.Error(t, l.TryLock(ctx, "\xff"))
		require.Error(t, keyed.New(c.Client, nil).Lock(ctx, "a"))
		assert.Zero(t, keyed.InUse(l))
		require.NoError(t, other.Lock(ctx, "a"))
		impatient := testwait.Go(func() error { return l.Lock(testwait.Context(t, time.Minute), "a") })
		synctest.Wait()
		waits := testwait.Go(func() error { return l.Lock(ctx, "a") })
		synctest.Wait()
		require.ErrorIs(t, l.TryLock(ctx, "a"), locker.ErrHeld, "two await it")
		require.ErrorIs(t, <-impatient, context.DeadlineExceeded)
		require.NoError(t, other.Unlock(ctx, "a"))
		require.NoError(t, <-waits)
		require.NoError(t, l.Unlock(ctx, "a"))
		assert.Zero(t, keyed.InUse(l)+keyed.InUse(other))
	})
}

// Each caller rides out TTL/2 of an outage, from when its own call began, not one after another.
func TestLock_ofOneNameRidesOutAnOutageTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := locktest.New(t)
		l := keyed.New(c.Client)
		c.Down()
		took := make(chan time.Duration, 40)
		lock := func() {
			began := time.Now()
			require.ErrorIs(t, l.Lock(t.Context(), "a"), locktest.ErrUnreachable)
			took <- time.Since(began)
		}
		for range cap(took) / 2 {
			go lock()
		}
		time.Sleep(ttl / 4)
		for range cap(took) / 2 {
			go lock()
		}
		for range cap(took) {
			assert.InDelta(t, ttl/2, <-took, float64(ttl/50))
		}
		c.Up()
		require.NoError(t, l.Lock(t.Context(), "a"))
		waits := testwait.Go(func() error { return l.Lock(t.Context(), "a") })
		synctest.Wait()
		c.Lose("a")
		c.Down()
		require.ErrorIs(t, l.Relock(t.Context(), "a"), locktest.ErrUnreachable)
		time.Sleep(ttl)
		c.Up()
		require.ErrorIs(t, l.Unlock(t.Context(), "a"), locker.ErrLost)
		require.NoError(t, <-waits, "what failed under a hold that was lost is over")
		require.NoError(t, l.Unlock(t.Context(), "a"))
		assert.Zero(t, keyed.InUse(l))
	})
}

// Extend is where an interface that names locks hears of a loss.
func TestExtend_tellsOfALossThatUnlockEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ctx := keyed.New(locktest.New(t).Client, locker.WithoutRenewal()), t.Context()
		require.NoError(t, l.Lock(ctx, "a"))
		time.Sleep(ttl / 2)
		require.NoError(t, l.Extend(ctx, "a"))
		time.Sleep(ttl * 3 / 4)
		assert.NotZero(t, l.FencingToken("a"), "it was extended")
		time.Sleep(ttl)
		assert.Zero(t, l.FencingToken("a"))
		require.ErrorIs(t, l.Extend(ctx, "a"), locker.ErrLost)
		require.ErrorIs(t, l.Unlock(ctx, "a"), locker.ErrLost)
		require.ErrorIs(t, l.Extend(ctx, "a"), locker.ErrNotHeld)
		require.NoError(t, l.Lock(ctx, "a"), "it can be taken anew")
		require.NoError(t, l.Unlock(ctx, "a"))
		assert.Zero(t, keyed.InUse(l))
	})
}

// Who waits has nothing to do with the loss, and the Unlock that is still to come must not end its
// hold.
func TestLock_waitsForTheUnlockOfALostHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ctx := keyed.New(locktest.New(t).Client, locker.WithoutRenewal()), t.Context()
		require.NoError(t, l.Lock(ctx, "a"))
		first := l.FencingToken("a")
		waits := testwait.Go(func() error { return l.Lock(ctx, "a") })
		time.Sleep(2 * ttl)
		require.ErrorIs(t, l.TryLock(ctx, "a"), locker.ErrHeld)
		err := l.Lock(testwait.Context(t, time.Minute), "a")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, locker.ErrHeld, "nobody holds it")
		require.Empty(t, waits)
		require.ErrorIs(t, l.Unlock(ctx, "a"), locker.ErrLost)
		require.NoError(t, <-waits)
		assert.Greater(t, l.FencingToken("a"), first)
		require.NoError(t, l.Unlock(ctx, "a"))
		assert.Zero(t, keyed.InUse(l))
	})
}

func TestLock_whoseContextEndsSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, ctx := keyed.New(locktest.New(t).Client), t.Context()
		require.NoError(t, l.Lock(ctx, "a"))
		why := errors.New("shutdown")
		ended, cancel := context.WithTimeoutCause(ctx, time.Second, why)
		defer cancel()
		err := l.Lock(ended, "a")
		for _, want := range []error{context.DeadlineExceeded, why, locker.ErrHeld} {
			require.ErrorIs(t, err, want)
		}
		require.EqualError(t, err, `locker: lock "a": context deadline exceeded: shutdown: the lock is held by another owner`)
		require.NoError(t, l.Unlock(ctx, "a"))
		assert.Zero(t, keyed.InUse(l))
	})
}

// The goroutine that has the lock may never unlock it.
func TestLock_endsWhenTheClientIsClosed(t *testing.T) {
	for name, after := range map[string]time.Duration{"behind a hold": 0, "behind a hold that was lost before": 2 * ttl} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := locktest.New(t, locker.WithoutRenewal())
				l, ctx := keyed.New(c.Client), t.Context()
				require.NoError(t, l.Lock(ctx, "a"))
				first, second := testwait.Go(func() error { return l.Lock(ctx, "a") }), testwait.Go(func() error { return l.Lock(ctx, "a") })
				time.Sleep(after)
				synctest.Wait()
				require.NoError(t, c.Close())
				closed := time.Now()
				for _, waits := range []<-chan error{first, second} {
					err := <-waits
					require.ErrorIs(t, err, locker.ErrClosed)
					require.ErrorContains(t, err, `lock "a"`)
				}
				assert.Zero(t, time.Since(closed))
				require.ErrorIs(t, l.Lock(ctx, "a"), locker.ErrClosed)
				require.ErrorIs(t, l.TryLock(ctx, "a"), locker.ErrClosed, "who tries again and again must not go on")
				require.ErrorIs(t, l.Unlock(ctx, "a"), locker.ErrLost)
				assert.Zero(t, keyed.InUse(l))
			})
		})
	}
}

// Metrics count the Unlock of each hold, and what the backend may still have of it is released.
func TestRelock_takesALostLockAnewAfterAllOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var unlocked []uint64
		observer := locker.WithObserver(locker.Observer{Done: func(_ context.Context, call locker.Call, r locker.Result) {
			if call.Op == "unlock" {
				unlocked = append(unlocked, r.Token)
			}
		}})
		l, other, ctx := keyed.New(locktest.New(t, observer).Client, locker.WithoutRenewal()), keyed.New(locktest.New(t).Client), t.Context()
		require.ErrorIs(t, l.Relock(ctx, "a"), locker.ErrNotHeld)
		require.NoError(t, l.Lock(ctx, "a"))
		first := l.FencingToken("a")
		require.NoError(t, l.Relock(ctx, "a"), "it was not lost")
		require.Equal(t, first, l.FencingToken("a"))
		require.NoError(t, other.Lock(ctx, "a"), "when it has expired")

		require.ErrorIs(t, l.Relock(testwait.Context(t, time.Minute), "a"), locker.ErrHeld)
		require.ErrorIs(t, l.Extend(ctx, "a"), locker.ErrLost, "the loss is still to be ended")
		again := testwait.Go(func() error { return l.Relock(ctx, "a") })
		waits := testwait.Go(func() error { return l.Lock(ctx, "a") })
		synctest.Wait()
		second := other.FencingToken("a")
		require.NoError(t, other.Unlock(ctx, "a"))
		require.NoError(t, <-again)
		assert.Equal(t, []uint64{first}, unlocked)
		assert.Greater(t, l.FencingToken("a"), second)
		require.NoError(t, l.Extend(ctx, "a"))
		require.Empty(t, waits, "its turn has not come")
		require.NoError(t, l.Unlock(ctx, "a"))
		require.NoError(t, <-waits)
		require.NoError(t, l.Unlock(ctx, "a"))
		assert.Zero(t, keyed.InUse(l)+keyed.InUse(other))
	})
}

// A program that cleans up unlocks what others are still about to use.
func TestUnlock_duringRelockLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, other, ctx := keyed.New(locktest.New(t).Client, locker.WithoutRenewal()), keyed.New(locktest.New(t).Client), t.Context()
		require.NoError(t, l.Lock(ctx, "a"))
		require.NoError(t, other.Lock(ctx, "a"))
		again := testwait.Go(func() error { return l.Relock(ctx, "a") })
		synctest.Wait()
		require.ErrorIs(t, l.Unlock(ctx, "a"), locker.ErrLost)
		next := testwait.Go(func() error { return l.Lock(ctx, "a") })
		synctest.Wait()
		began := time.Now()
		require.NoError(t, other.Unlock(ctx, "a"))
		require.ErrorIs(t, <-again, locker.ErrNotHeld)
		require.NoError(t, <-next)
		require.NoError(t, l.Unlock(ctx, "a"))
		assert.Zero(t, time.Since(began), "what Relock took is given back, and does not have to expire")
		require.NoError(t, other.TryLock(ctx, "a"), "nothing is left")
		require.NoError(t, other.Unlock(ctx, "a"))
		assert.Zero(t, keyed.InUse(l)+keyed.InUse(other))
	})
}

func ExampleNew() {
	ctx := context.Background()
	client, err := locker.Open(ctx, "mem://example-keyed")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	locks := keyed.New(client)
	fmt.Println(locks.Lock(ctx, "cert/example.com"))
	fmt.Println(locks.TryLock(ctx, "cert/example.com"))
	fmt.Println(locks.Unlock(context.WithoutCancel(ctx), "cert/example.com"))
	fmt.Println(locks.Unlock(ctx, "cert/example.com"))
	// Output:
	// <nil>
	// locker: trylock "cert/example.com": the lock is held by another owner
	// <nil>
	// locker: unlock "cert/example.com": the lock is not held
}
