package locker

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
)

// always is a driver, and a lease, that grants everything.
type always struct{ released atomic.Int64 }

func (a *always) Acquire(context.Context, driver.Request) (driver.Lease, error) { return a, nil }
func (a *always) Guarantees() Guarantees                                        { return nil }
func (a *always) Close() error                                                  { return nil }
func (a *always) Token() uint64                                                 { return 1 }
func (a *always) Validity() time.Duration                                       { return time.Hour }
func (a *always) Extend(context.Context, time.Duration) error                   { return nil }
func (a *always) Release(context.Context) error                                 { a.released.Add(1); return nil }

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
		until(func() bool { return c.open.Err() != nil })
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
		h.lose(CauseRevoked)
		told := 0
		h.atEnd(0, func(error) { told++ })
		assert.Equal(t, 1, told)
		require.NoError(t, c.Close())
	})
}

// late is a backend that grants everything, and takes its time to answer a request to extend.
type late struct {
	always
	reply time.Duration
}

func (d *late) Acquire(context.Context, driver.Request) (driver.Lease, error) { return d, nil }

func (d *late) Extend(context.Context, time.Duration) error {
	time.Sleep(d.reply)
	return nil
}

// A hold that is over is over, whatever the backend has said since and however late its timer is.
func TestExtend_answeredAfterTheEndProlongsNothing(t *testing.T) {
	for _, c := range []struct {
		name string
		sent time.Duration
		end  func(*testing.T, *Hold)
		want error
	}{
		{"past its deadline", 9 * time.Second, func(*testing.T, *Hold) {}, ErrLost},
		{"unlocked", 5 * time.Second, func(t *testing.T, h *Hold) { require.NoError(t, h.Unlock(t.Context())) }, ErrNotHeld},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, err := New(&late{reply: 2 * time.Second}, WithTTL(10*time.Second), WithoutRenewal())
				require.NoError(t, err)
				h, err := client.Mutex("x").Acquire(t.Context())
				require.NoError(t, err)
				deadline := h.Deadline()
				client.renewer.timer.Stop()
				time.Sleep(c.sent)
				extended := make(chan error, 1)
				go func() { extended <- h.Extend(t.Context()) }()
				synctest.Wait()
				c.end(t, h)
				require.ErrorIs(t, <-extended, c.want)
				assert.Equal(t, deadline, h.Deadline())
				require.NoError(t, client.Close())
			})
		})
	}
}

// Close has begun, and has not come to this hold yet.
func TestUnlock_ofAClientThatIsClosingIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &always{}
		var cause Cause
		c, err := New(d, WithObserver(Observer{Ended: func(_ context.Context, tenure HoldID, e HoldEnd) {
			if tenure.Name == "second" {
				cause = e.Cause
			}
		}}))
		require.NoError(t, err)
		first, err := c.Mutex("first", WithTTL(10*time.Second)).Acquire(t.Context())
		require.NoError(t, err)
		second, err := c.Mutex("second", WithTTL(time.Minute)).Acquire(t.Context())
		require.NoError(t, err)
		first.mu.Lock() // Close loses the hold that is due first, first
		closed := make(chan error)
		go func() { closed <- c.Close() }()
		until(func() bool { return c.open.Err() != nil })
		unlocked := second.Unlock(t.Context())
		first.mu.Unlock()
		require.NoError(t, <-closed)
		require.ErrorIs(t, unlocked, ErrLost)
		select {
		case <-second.Lost():
		default:
			assert.Fail(t, "the hold was not lost")
		}
		assert.Equal(t, CauseClosed, cause)
		assert.EqualValues(t, 2, d.released.Load())
	})
}

// What comes after Close is left out, and is not missing: no later record tells that it was dropped.
func TestLog_afterCloseIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(&always{}, WithLogger(slog.New(slog.DiscardHandler)))
		require.NoError(t, err)
		require.NoError(t, c.Close())
		c.log(slog.LevelWarn, "too late")
		assert.Zero(t, c.unlogged.Load())
	})
}
