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
		wanted = next.Wanted()
		synctest.Wait()
		assert.True(t, fired(wanted), "somebody waited already")
		require.NoError(t, next.Unlock(t.Context()))
		require.NoError(t, <-locked[1])
		wanted = last.Wanted()
		synctest.Wait()
		assert.False(t, fired(wanted))
		require.NoError(t, last.Unlock(t.Context()))
		assert.Nil(t, last.Wanted(), "nothing is held")
	}, true)
}

func TestWanted_isToldOfGoroutinesThatWaitForTheSameMutex(t *testing.T) {
	ofWaiters(t, func(t *testing.T, c, _ *locker.Client, d *untold) {
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		wanted := m.Wanted()
		var locked []<-chan error
		for range 2 {
			locked = append(locked, testwait.Go(func() error { return m.Lock(t.Context()) }))
			synctest.Wait()
		}
		assert.True(t, fired(wanted))
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, <-locked[0])
		looks := d.looks.Load()
		assert.True(t, fired(m.Wanted()), "one waited already")
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
