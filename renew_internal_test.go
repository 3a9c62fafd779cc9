package locker

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// always is a driver, and a lease, that grants everything.
type always struct{ released atomic.Int64 }

func (a *always) Acquire(context.Context, Request) (Lease, error) { return a, nil }
func (a *always) Guarantees() Guarantees                          { return nil }
func (a *always) Close() error                                    { return nil }
func (a *always) Token() uint64                                   { return 1 }
func (a *always) Validity() time.Duration                         { return time.Hour }
func (a *always) Extend(context.Context, time.Duration) error     { return nil }
func (a *always) Release(context.Context) error                   { a.released.Add(1); return nil }

// until spins, for f tells of goroutines that a mutex blocks, which time does not wait for.
func until(f func() bool) {
	for i := 0; i < 1e6 && !f(); i++ {
		runtime.Gosched()
	}
}

// The renewer is about to renew the hold, and Close comes first.
func TestClose_losesAHoldThatIsBeingRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &always{}
		c, err := New(d, WithTTL(9600*time.Millisecond)) // first renewed after 3 s
		require.NoError(t, err)
		h, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		time.Sleep(3*time.Second - time.Nanosecond)
		c.renewer.mu.Lock()
		due := h.due
		c.renewer.mu.Unlock()
		h.mu.Lock()
		time.Sleep(time.Nanosecond)
		until(func() bool {
			c.renewer.mu.Lock()
			defer c.renewer.mu.Unlock()
			return len(c.renewer.holds) == 0 || !h.due.Equal(due)
		})
		closed := make(chan error)
		go func() { closed <- c.Close() }()
		until(func() bool {
			c.renewer.mu.Lock()
			defer c.renewer.mu.Unlock()
			return c.renewer.closed
		})
		h.mu.Unlock()
		require.NoError(t, <-closed)
		select {
		case <-h.Lost():
		default:
			assert.Fail(t, "the hold was not lost")
		}
		assert.NotZero(t, d.released.Load())
	})
}

// A timer may be late, by as long as the machine was asleep or busy.
func TestHold_isOverByTheClock(t *testing.T) {
	for name, see := range map[string]func(*testing.T, *Mutex){
		"FencingToken": func(t *testing.T, m *Mutex) { assert.Zero(t, m.FencingToken()) },
		"Unlock":       func(t *testing.T, m *Mutex) { assert.ErrorIs(t, m.Unlock(t.Context()), ErrLost) },
		"Extend":       func(t *testing.T, m *Mutex) { assert.ErrorIs(t, m.Extend(t.Context()), ErrLost) },
		"Lock":         func(t *testing.T, m *Mutex) { assert.ErrorIs(t, m.Lock(t.Context()), ErrLost) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := New(&always{}, WithTTL(10*time.Second), WithoutRenewal())
				require.NoError(t, err)
				m := c.Mutex("x")
				require.NoError(t, m.Lock(t.Context()))
				lost := m.Lost()
				c.renewer.timer.Stop()
				time.Sleep(9898 * time.Millisecond)
				see(t, m)
				<-lost
				require.NoError(t, c.Close())
			})
		})
	}
}

func TestDo_isToldOfALossThatCameFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(&always{})
		require.NoError(t, err)
		h, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		h.lose(Revoked)
		told := 0
		h.notifyLost(func() { told++ })
		assert.Equal(t, 1, told)
		require.NoError(t, c.Close())
	})
}
