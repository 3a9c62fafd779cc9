package core_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/memory"
)

// The time of the hold and the allowance for drift are over, and the answer to a request of another
// hold comes just before the session would end.
func TestLoss_releasesALeaseWhoseSessionIsHeardOfAtTheLastMoment(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		revives := func(l driver.Claim) time.Duration {
			if left := l.Validity() + drift/2; left > 0 {
				return left
			}
			return ttl
		}
		lockedOf(t, lasting(b, revives), locker.WithoutRenewal())
		time.Sleep(ttl + drift)
		assert.Len(t, b.calls(release), 1, "nobody may ever unlock it")
	})
}

func TestClose_doesNotWaitForTheLastMomentOfALease(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		little := func(l driver.Claim) time.Duration { return max(l.Validity(), drift/2) }
		c := clientOf(t, lasting(b, little), locker.WithoutRenewal())
		require.NoError(t, c.Mutex("x").Lock(t.Context()))
		time.Sleep(ttl + drift/4)
		assert.Zero(t, took(func() { require.NoError(t, c.Close()) }))
	})
}

func TestLoss_isSeenWhenTheBackendTells(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		var lost func()
		c := clientOf(t, notifying(b, func(f func()) { lost = f }))
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		lost()
		assert.True(t, fired(m.Hold().Lost()))
		assert.Zero(t, m.FencingToken())
		require.ErrorIs(t, m.Extend(t.Context()), locker.ErrLost)
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		synctest.Wait()

		h, err := m.TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Unlock(t.Context()))
		lost()
		assert.False(t, fired(h.Lost()), "told after its Unlock")
		require.ErrorIs(t, h.Unlock(t.Context()), locker.ErrNotHeld)
		require.NoError(t, c.Close())
		assert.Len(t, b.calls(release), 2, "Close has nothing to release")
	})
}

// A hold can be lost before the Lock that took it has returned. Those who wait with its Mutex are
// told all the same.
func TestLoss_inTheMomentOfTheGrantEndsTheWaitingOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := clientOf(t, notifying(b, func(lost func()) { lost() })).Mutex("x")
		b.next(acquire, fault{request: 2 * time.Second})
		first := testwait.Go(func() error { return m.Lock(t.Context()) })
		time.Sleep(time.Second)
		b.next(acquire, hangs)
		second := testwait.Go(func() error { return m.Lock(context.Background()) })
		require.NoError(t, <-first)
		assert.Zero(t, took(func() { require.ErrorIs(t, <-second, locker.ErrLost) }))
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
	})
}

// One goroutine of a Mutex contends at the backend. The others wait for that one, and hear of a
// loss.
func TestLock_oneOfManyGoroutinesContends(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.client(t, locker.WithoutRenewal()).Mutex("x")
		b.next(acquire, fault{reply: time.Second})
		first := testwait.Go(func() error { return m.Lock(t.Context()) })
		synctest.Wait()
		require.ErrorIs(t, m.TryLock(t.Context()), locker.ErrHeld)
		noErrorIs(t, m.Lock(ending(t, time.Millisecond)), locker.ErrHeld) // nobody has it yet
		second, _ := waiting(t, m.Lock)
		third, cancel := waiting(t, m.Lock)
		require.NoError(t, <-first)
		cancel()
		err := <-third
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, locker.ErrHeld)
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, <-second)
		assert.EqualValues(t, 2, m.FencingToken())
		var all []<-chan error
		asked := len(b.calls(acquire))
		for range 10 {
			waits, _ := waiting(t, m.Lock)
			all = append(all, waits)
		}
		assert.Len(t, b.calls(acquire), asked)
		b.steal("x")
		require.ErrorIs(t, m.Extend(t.Context()), locker.ErrLost)
		for _, waits := range all {
			require.ErrorIs(t, <-waits, locker.ErrLost)
		}
		require.ErrorIs(t, m.Lock(t.Context()), locker.ErrLost)
	})
}

// Who waits for its turn with a Mutex knows what those before it were told.
func TestLock_thatHadNoTurnSaysThatAnotherHasTheLock(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		b.steal("x")
		m := b.client(t).Mutex("x")
		_, leave := waiting(t, m.Lock)
		require.ErrorIs(t, m.Lock(ending(t, time.Second)), locker.ErrHeld)
		b.every(acquire, hangs)
		next := testwait.Go(func() error { return m.Lock(ending(t, time.Second)) })
		synctest.Wait()
		leave()
		require.ErrorIs(t, <-next, locker.ErrHeld, "though its own request is not answered")
	})
}

// A hold can be lost while its Unlock is under way. Those who wait with its Mutex get the lock: no
// loss awaits its Unlock any more.
func TestLock_isNotEndedByTheLossOfAHoldThatIsBeingUnlocked(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		var lost func()
		loses := func(ctx context.Context, call locker.Call) context.Context {
			if call.Op == "unlock" {
				lost()
			}
			return ctx
		}
		d := notifying(b, func(f func()) { lost = f })
		m := lockedOf(t, d, locker.WithObserver(locker.Observer{Start: loses}))
		first, _ := waiting(t, m.Lock)
		second, _ := waiting(t, m.Lock)
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		require.NoError(t, <-first)
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		require.NoError(t, <-second)
	})
}

// The process stands still for a while just behind the core's look at the clock.
func TestLoss_isAtTheDeadlineThoughTheProcessStoodStillWhenTheHoldBegan(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		pause := 900 * time.Millisecond
		d := lasting(b, func(l driver.Claim) time.Duration {
			left := l.Validity()
			time.Sleep(pause)
			pause = 0
			return left
		})
		m := lockedOf(t, d, locker.WithTTL(2*time.Second), locker.WithoutRenewal())
		<-m.Hold().Lost()
		assert.Equal(t, m.Hold().Deadline(), time.Now())
	})
}

// A lease may count its TTL from a little later than the core does, as a quorum's does.
func TestLoss_ofALeaseThatEndsByItselfMakesNoRelease(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		late := func(l driver.Claim) time.Duration { return l.Validity() + time.Millisecond }
		lockedOf(t, lasting(b, late), locker.WithoutRenewal())
		time.Sleep(2 * ttl)
		assert.Empty(t, b.calls(release))
	})
}

// untold is package memory as a backend that tells no holder that somebody waits. It counts looks.
type untold struct {
	driver.Driver
	driver.Operator

	looks    atomic.Int64
	hasOrder bool // of waiters
}

func (d *untold) Guarantees() locker.Guarantees {
	g := d.Driver.Guarantees()
	if !d.hasOrder {
		delete(g, locker.Ordered)
	}
	return g
}

func (d *untold) Claim(req driver.Request) driver.Claim {
	return struct{ driver.Claim }{d.Driver.Claim(req)}
}

func (d *untold) Inspect(ctx context.Context, name string) (driver.State, error) {
	d.looks.Add(1)
	return d.Operator.Inspect(ctx, name)
}

// ofWaiters runs a test in a bubble, with a Client in a space of its own, and another beside it.
func ofWaiters(t *testing.T, test func(t *testing.T, c, other *locker.Client, d *untold)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		inMemory := memory.NewDriver(memory.InSpace(t.Name()))
		d := &untold{Driver: inMemory, Operator: inMemory.(driver.Operator), hasOrder: true}
		test(t, clientOf(t, d), clientOf(t, memory.NewDriver(memory.InSpace(t.Name()))), d)
	})
}

func TestWanted_isToldOfGoroutinesThatWaitForTheSameMutex(t *testing.T) {
	ofWaiters(t, func(t *testing.T, c, _ *locker.Client, d *untold) {
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		wanted := m.Hold().Wanted()
		var locked []<-chan error
		for range 2 {
			locked = append(locked, testwait.Go(func() error { return m.Lock(t.Context()) }))
			synctest.Wait()
		}
		assert.True(t, fired(wanted))
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, <-locked[0])
		looks := d.looks.Load()
		assert.True(t, fired(m.Hold().Wanted()), "one waited already")
		assert.Equal(t, looks, d.looks.Load(), "which nobody has to look for")
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, <-locked[1])
		require.NoError(t, m.Unlock(t.Context()))
	})
}

// A hold that asked looks ten times in a TTL, until somebody waits. One that did not ask never
// looks.
func TestWanted_looksWhereTheBackendDoesNotTell(t *testing.T) {
	ofWaiters(t, func(t *testing.T, c, other *locker.Client, d *untold) {
		h := acquired(t, c)
		time.Sleep(5 * ttl)
		assert.Zero(t, d.looks.Load(), "nobody has asked")
		wanted := h.Wanted()
		assert.Equal(t, wanted, h.Wanted())
		time.Sleep(ttl + ttl/20)
		assert.Equal(t, int64(11), d.looks.Load())
		assert.False(t, fired(wanted))

		m := other.Mutex("x")
		locked := testwait.Go(func() error { return m.Lock(t.Context()) })
		time.Sleep(ttl / 10)
		synctest.Wait()
		assert.True(t, fired(wanted))
		time.Sleep(5 * ttl)
		assert.Equal(t, int64(12), d.looks.Load(), "it knows")
		require.NoError(t, h.Unlock(t.Context()))
		require.NoError(t, <-locked)

		wanted = m.Hold().Wanted()
		synctest.Wait() // it has looked once
		next := testwait.Go(func() error { return c.Mutex("x").Lock(t.Context()) })
		synctest.Wait()
		assert.True(t, fired(wanted), "at once where the backend tells")
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, <-next)
	})
}

func TestWanted_looksInNoQueueThatIsNotThere(t *testing.T) {
	ofWaiters(t, func(t *testing.T, c, _ *locker.Client, d *untold) {
		d.hasOrder = false
		h := acquired(t, c)
		wanted := h.Wanted()
		time.Sleep(5 * ttl)
		assert.Zero(t, d.looks.Load())
		assert.False(t, fired(wanted))
		require.NoError(t, h.Unlock(t.Context()))
	})
}

func TestWanted_looksNoLongerThanTheHoldLasts(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, c *locker.Client, h *locker.Hold){
		"Unlock": func(t *testing.T, _ *locker.Client, h *locker.Hold) {
			t.Helper()
			require.NoError(t, h.Unlock(t.Context()))
		},
		"Abandon": func(t *testing.T, _ *locker.Client, h *locker.Hold) { t.Helper(); require.NoError(t, h.Abandon()) },
		"Close":   func(t *testing.T, c *locker.Client, _ *locker.Hold) { t.Helper(); require.NoError(t, c.Close()) },
		"expiry":  func(*testing.T, *locker.Client, *locker.Hold) { time.Sleep(ttl) },
	} {
		t.Run(name, func(t *testing.T) {
			ofWaiters(t, func(t *testing.T, c, _ *locker.Client, d *untold) {
				h := acquired(t, c, locker.WithoutRenewal())
				wanted := h.Wanted()
				end(t, c, h)
				synctest.Wait()
				looks := d.looks.Load()
				time.Sleep(2 * ttl)
				assert.Equal(t, looks, d.looks.Load())
				assert.False(t, fired(wanted))
				assert.False(t, fired(h.Wanted()))
				assert.Equal(t, looks, d.looks.Load())
			})
		})
	}
}
