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

func TestLoss_withoutRenewalIsAtTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.locked(t, "x", locker.WithoutRenewal())
		time.Sleep(life - time.Nanosecond)
		synctest.Wait()
		assert.False(t, fired(m.Hold().Lost()))
		assert.NotZero(t, m.FencingToken())
		time.Sleep(time.Nanosecond)
		assert.Zero(t, m.FencingToken(), "by the clock, whether or not a timer has run")
		synctest.Wait()
		assert.True(t, fired(m.Hold().Lost()))
		assert.Empty(t, b.calls(extend))
	})
}

// The time of the hold and the allowance for drift are over, and the answer to a request of another
// hold comes just before the session would end.
func TestLoss_releasesALeaseWhoseSessionIsHeardOfAtTheLastMoment(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		revives := func(l driver.Lease) time.Duration {
			if left := l.Validity() + drift/2; left > 0 {
				return left
			}
			return ttl
		}
		m := clientOf(t, lasting(b, revives), locker.WithoutRenewal()).Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		time.Sleep(ttl + drift)
		assert.Len(t, b.calls(release), 1, "nobody may ever unlock it")
	})
}

func TestClose_doesNotWaitForTheLastMomentOfALease(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		little := func(l driver.Lease) time.Duration { return max(l.Validity(), drift/2) }
		c := clientOf(t, lasting(b, little), locker.WithoutRenewal())
		require.NoError(t, c.Mutex("x").Lock(t.Context()))
		time.Sleep(ttl + drift/4)
		assert.Zero(t, took(func() { require.NoError(t, c.Close()) }))
	})
}

func TestLoss_isSeenWhenTheBackendTells(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		var lost func()
		m := clientOf(t, notifying(b, func(f func()) { lost = f })).Mutex("x")
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
	})
}

// A hold can be lost before the Lock that took it has returned. Those who wait with its Mutex are
// told all the same.
func TestLoss_inTheMomentOfTheGrantEndsTheWaitingOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := clientOf(t, notifying(b, func(lost func()) { lost() })).Mutex("x")
		b.next(acquire, fault{request: 2 * time.Second})
		first := inBackground(func() error { return m.Lock(t.Context()) })
		time.Sleep(time.Second)
		b.next(acquire, hangs)
		second := inBackground(func() error { return m.Lock(context.Background()) })
		require.NoError(t, <-first)
		assert.Zero(t, took(func() { require.ErrorIs(t, <-second, locker.ErrLost) }))
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
	})
}

// The lock has gone to another, who keeps it: a goroutine that waits on the Mutex whose hold was
// lost hears of the loss, and not only when its turn comes.
func TestLock_thatWaitsHearsOfItsMutexsLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clientOf(t, memory.NewDriver(memory.InSpace(t.Name())), locker.WithoutRenewal())
		m, other := c.Mutex("x"), c.Mutex("x", locker.WithTTL(time.Hour))
		require.NoError(t, m.Lock(t.Context()))
		taken, _ := waiting(t, other.Lock)
		waits, _ := waiting(t, m.Lock)
		assert.LessOrEqual(t, took(func() { require.ErrorIs(t, <-waits, locker.ErrLost) }), ttl)
		require.NoError(t, <-taken)
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		require.ErrorIs(t, m.Lock(ending(t, time.Second)), locker.ErrHeld, "the loss is dealt with, and Lock waits again")
		require.NoError(t, other.Unlock(t.Context()))
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
	})
}

// One goroutine of a Mutex contends at the backend. The others wait for that one, and hear of a
// loss.
func TestLock_oneOfManyGoroutinesContends(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.client(t, locker.WithoutRenewal()).Mutex("x")
		b.next(acquire, fault{reply: time.Second})
		first := inBackground(func() error { return m.Lock(t.Context()) })
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
		m := clientOf(t, d, locker.WithObserver(locker.Observer{Start: loses})).Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		waits, _ := waiting(t, m.Lock)
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		require.NoError(t, <-waits)
	})
}

// The process stands still for a while just behind the core's look at the clock.
func TestLoss_isAtTheDeadlineThoughTheProcessStoodStillWhenTheHoldBegan(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		pause := 900 * time.Millisecond
		d := lasting(b, func(l driver.Lease) time.Duration {
			left := l.Validity()
			time.Sleep(pause)
			pause = 0
			return left
		})
		m := clientOf(t, d, locker.WithTTL(2*time.Second), locker.WithoutRenewal()).Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		<-m.Hold().Lost()
		assert.Equal(t, m.Hold().Deadline(), time.Now())
	})
}

// A lease may count its TTL from a little later than the core does, as a quorum's does.
func TestLoss_ofALeaseThatEndsByItselfMakesNoRelease(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		late := func(l driver.Lease) time.Duration { return l.Validity() + time.Millisecond }
		m := clientOf(t, lasting(b, late), locker.WithoutRenewal()).Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
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
func ofWaiters(t *testing.T, test func(t *testing.T, c, other *locker.Client, d *untold), tells bool) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		inMemory := memory.NewDriver(memory.InSpace(t.Name()))
		own := &untold{Driver: inMemory, Operator: inMemory.(driver.Operator), hasOrder: true}
		drivers := []driver.Driver{own, memory.NewDriver(memory.InSpace(t.Name()))}
		if tells {
			drivers[0] = own.Driver
		}
		var clients []*locker.Client
		for _, d := range drivers {
			c, err := locker.New(d, locker.WithTTL(ttl))
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			clients = append(clients, c)
		}
		test(t, clients[0], clients[1], own)
	})
}

func TestWanted_isToldAtOnceWhereTheBackendTells(t *testing.T) {
	ofWaiters(t, func(t *testing.T, c, other *locker.Client, _ *untold) {
		h, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		wanted := h.Wanted()
		synctest.Wait()
		require.ErrorIs(t, other.Mutex("x").TryLock(t.Context()), locker.ErrHeld)
		synctest.Wait()
		assert.False(t, fired(wanted), "of a TryLock nothing is heard")
		next, last := c.Mutex("x"), other.Mutex("x")
		var locked []<-chan error
		for _, m := range []*locker.Mutex{next, last} {
			locked = append(locked, testwait.Go(func() error { return m.Lock(t.Context()) }))
			synctest.Wait()
		}
		assert.True(t, fired(wanted))
		assert.True(t, fired(h.Wanted()), "it is the same channel")
		require.NoError(t, h.Unlock(t.Context()))
		require.NoError(t, <-locked[0])
		wanted = next.Hold().Wanted()
		synctest.Wait()
		assert.True(t, fired(wanted), "somebody waited already")
		require.NoError(t, next.Unlock(t.Context()))
		require.NoError(t, <-locked[1])
		wanted = last.Hold().Wanted()
		synctest.Wait()
		assert.False(t, fired(wanted))
		require.NoError(t, last.Unlock(t.Context()))
		assert.Nil(t, last.Hold(), "nothing is held")
	}, true)
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
	}, false)
}

// A hold that asked looks ten times in a TTL, until somebody waits. One that did not ask never
// looks.
func TestWanted_looksWhereTheBackendDoesNotTell(t *testing.T) {
	ofWaiters(t, func(t *testing.T, c, other *locker.Client, d *untold) {
		h, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
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
	}, false)
}

func TestWanted_looksInNoQueueThatIsNotThere(t *testing.T) {
	ofWaiters(t, func(t *testing.T, c, _ *locker.Client, d *untold) {
		d.hasOrder = false
		h, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		wanted := h.Wanted()
		time.Sleep(5 * ttl)
		assert.Zero(t, d.looks.Load())
		assert.False(t, fired(wanted))
		require.NoError(t, h.Unlock(t.Context()))
	}, false)
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
				h, err := c.Mutex("x", locker.WithoutRenewal()).Acquire(t.Context())
				require.NoError(t, err)
				wanted := h.Wanted()
				end(t, c, h)
				synctest.Wait()
				looks := d.looks.Load()
				time.Sleep(2 * ttl)
				assert.Equal(t, looks, d.looks.Load())
				assert.False(t, fired(wanted))
				assert.False(t, fired(h.Wanted()))
				assert.Equal(t, looks, d.looks.Load())
			}, false)
		})
	}
}
