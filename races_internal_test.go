package locker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
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
