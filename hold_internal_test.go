package locker

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
)

// once is a backend of one lock, whose holder expires. The first lease stops the goroutine of its Lock
// between the grant and the return, until stall is closed.
type once struct {
	always
	stall chan struct{}

	mu     sync.Mutex
	tokens uint64
	until  time.Time
}

type onceLease struct {
	*once
	token uint64
	until time.Time
}

func (d *once) Acquire(_ context.Context, req driver.Request) (driver.Lease, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if time.Now().Before(d.until) {
		return nil, ErrHeld
	}
	d.tokens++
	d.until = time.Now().Add(req.TTL)
	return onceLease{d, d.tokens, d.until}, nil
}

func (l onceLease) Token() uint64           { return l.token }
func (l onceLease) Validity() time.Duration { return time.Until(l.until) }
func (l onceLease) NotifyLost(func()) {
	if l.token == 1 {
		<-l.stall
	}
}

func (l onceLease) Release(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.token != l.tokens {
		return ErrLost
	}
	l.once.until = time.Time{}
	return l.always.Release(ctx)
}

// The one that is late must not end the one that came after it.
func TestLock_whoseGoroutineStoppedPastItsHoldLeavesTheNextAlone(t *testing.T) {
	for _, op := range []string{opLock, opTryLock} {
		t.Run(op, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &once{stall: make(chan struct{})}
				c, err := New(d, WithTTL(10*time.Second), WithoutRenewal())
				require.NoError(t, err)
				defer c.Close()
				m := c.Mutex("x")
				stopped := make(chan error)
				go func() {
					lock := map[string]func(context.Context) error{opLock: m.Lock, opTryLock: m.TryLock}[op]
					stopped <- lock(t.Context())
				}()
				time.Sleep(11 * time.Second)
				require.NoError(t, m.Lock(t.Context()))
				close(d.stall)
				if op == opTryLock {
					require.ErrorIs(t, <-stopped, ErrHeld)
				}
				synctest.Wait()
				assert.EqualValues(t, 2, m.FencingToken())
				require.NoError(t, m.Unlock(t.Context()))
				if op == opLock {
					require.NoError(t, <-stopped)
					require.NoError(t, m.Unlock(t.Context()))
				}
			})
		})
	}
}

// Whichever of them ends the hold, one of them releases it.
func TestClose_besideAnUnlockReleases(t *testing.T) {
	for range 2000 {
		d := &always{}
		c, err := New(d, WithTTL(time.Minute))
		require.NoError(t, err)
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		unlocked := make(chan error)
		go func() {
			<-c.open.Done()
			unlocked <- m.Unlock(t.Context())
		}()
		require.NoError(t, c.Close())
		if err := <-unlocked; err != nil {
			require.ErrorIs(t, err, ErrLost)
		}
		require.NotZero(t, d.released.Load())
	}
}

// slowToAsk is a log handler that takes its time to say that it is not interested.
type slowToAsk struct{ slog.Handler }

func (slowToAsk) Enabled(context.Context, slog.Level) bool {
	time.Sleep(20 * time.Second)
	return false
}

func TestLoss_doesNotWaitForAHandlerThatIsAskedForItsLevel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(&always{}, WithTTL(100*time.Millisecond), WithoutRenewal(),
			WithLogger(slog.New(slowToAsk{slog.DiscardHandler})))
		require.NoError(t, err)
		var holds []*Hold
		for _, name := range []string{"a", "b", "c"} {
			h, err := c.Mutex(name).Acquire(t.Context())
			require.NoError(t, err)
			holds = append(holds, h)
		}
		for _, h := range holds {
			<-h.Lost()
			assert.Zero(t, time.Since(h.Deadline()))
		}
		time.Sleep(time.Minute)
		require.NoError(t, c.Close())
	})
}

func TestLoss_isInTimeThoughTheGoroutineOfATickStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New(&always{}, WithTTL(300*time.Millisecond))
		require.NoError(t, err)
		defer c.Close()
		h, err := c.Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		c.renewer.mu.Lock()
		due := h.due
		c.renewer.mu.Unlock()
		time.Sleep(time.Until(due) - 1)
		c.takeDue(due) // a tick whose goroutine gets no further
		<-h.Lost()
		assert.LessOrEqual(t, time.Since(h.Deadline()), time.Millisecond)
	})
}

// releaseOutage is a backend that fails to release until some time, while the lease goes on as that of a
// session does.
type releaseOutage struct {
	always
	over time.Time
}

func (d *releaseOutage) Acquire(context.Context, driver.Request) (driver.Lease, error) { return d, nil }

func (d *releaseOutage) Release(ctx context.Context) error {
	if time.Now().Before(d.over) {
		return errors.New("the backend is unreachable")
	}
	return d.always.Release(ctx)
}

func TestUnlock_ofALeaseThatGoesOnIsTriedPastTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &releaseOutage{over: time.Now().Add(30 * time.Second)}
		c, err := New(d, WithTTL(10*time.Second), WithoutRenewal())
		require.NoError(t, err)
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		require.ErrorContains(t, m.Unlock(t.Context()), "unreachable")
		time.Sleep(25 * time.Second)
		require.Zero(t, d.released.Load())
		time.Sleep(10 * time.Second)
		assert.NotZero(t, d.released.Load(), "nobody but us can end it")
		require.NoError(t, c.Close())
	})
}

// looked is a driver whose leases call a function when they are first asked how long they last, which is
// in the middle of a Lock.
type looked struct {
	always
	look func()
}

func (d *looked) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	l, err := d.always.Acquire(ctx, req)
	look := d.look
	d.look = nil
	return lookedLease{l, look}, err
}

type lookedLease struct {
	driver.Lease
	look func()
}

func (l lookedLease) Validity() time.Duration {
	if l.look != nil {
		l.look()
	}
	return l.Lease.Validity()
}

// One goroutine's Lock is being granted while another's hold is lost and unlocked.
func TestLock_aLossThatIsDealtWithInTheMomentOfTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &looked{}
		c, err := New(d, WithTTL(10*time.Second), WithoutRenewal())
		require.NoError(t, err)
		defer c.Close()
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		first := m.current()
		d.look = func() {
			first.lose(CauseRevoked)
			require.ErrorIs(t, m.Unlock(context.Background()), ErrLost)
		}
		require.NoError(t, m.Lock(t.Context()))
		assert.NotZero(t, m.FencingToken())
		<-m.Lost()
		require.ErrorIs(t, m.Lock(t.Context()), ErrLost, "again a loss awaits its Unlock")
		require.ErrorIs(t, m.Unlock(t.Context()), ErrLost)
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
	})
}

// A hold can be lost before it is the Mutex's own. Those who wait with it are told all the same.
func TestLock_ofAHoldThatIsLostAtOnceEndsTheWaitingOfOthers(t *testing.T) {
	c, err := New(&always{}, WithTTL(time.Minute))
	require.NoError(t, err)
	defer c.Close()
	m := c.Mutex("x")
	h, err := m.Acquire(t.Context())
	require.NoError(t, err)
	waits := m.contender(t.Context(), opLock)
	m.enter(waits)
	defer m.leave(waits)
	h.lose(CauseRevoked)
	m.hold = h
	h.belongsTo(m)
	assert.Equal(t, ErrLost, context.Cause(waits.own))
}

// A hold can be lost while its Unlock is under way. Those who wait with its Mutex get the lock: no loss awaits its Unlock any more.
func TestLock_isNotEndedByTheLossOfAHoldThatIsBeingUnlocked(t *testing.T) {
	var h *Hold
	c, err := New(&always{}, WithTTL(time.Minute), WithObserver(Observer{Start: func(ctx context.Context, call Call) context.Context {
		if call.Op == opUnlock {
			h.lose(CauseRevoked)
		}
		return ctx
	}}))
	require.NoError(t, err)
	defer c.Close()
	m := c.Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	h = m.current()
	waits := m.contender(t.Context(), opLock)
	m.enter(waits)
	defer m.leave(waits)
	require.ErrorIs(t, m.Unlock(t.Context()), ErrLost)
	require.NoError(t, waits.own.Err())
	require.NoError(t, m.Lock(t.Context()))
	h = m.current()
}

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
