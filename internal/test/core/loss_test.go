package core_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

func TestLoss_firesAtTheDeadlineWhateverTheBackendDoes(t *testing.T) {
	for name, f := range map[string]fault{
		"renewals hang": hangs, "renewals hang, and heed no ctx": hangIgnoringCtx, "unreachable": unreachable,
		"done, but every reply is lost": unheard, "answers too late": {reply: 7 * time.Second, ignoresCtx: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *backend) {
				m := b.locked(t, "x")
				b.down(f)
				<-m.Lost()
				assert.Equal(t, life, time.Since(b.start))
				assert.Zero(t, m.FencingToken())
				b.down(fault{})
				time.Sleep(2 * ttl)
				assert.Zero(t, m.FencingToken(), "a loss is final")
				require.ErrorIs(t, m.Extend(t.Context()), locker.ErrLost)
			})
		})
	}
}

func TestLoss_withoutRenewalIsAtTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.locked(t, "x", locker.WithoutRenewal())
		time.Sleep(life - time.Nanosecond)
		synctest.Wait()
		assert.False(t, fired(m.Lost()))
		assert.NotZero(t, m.FencingToken())
		time.Sleep(time.Nanosecond)
		assert.Zero(t, m.FencingToken(), "by the clock, whether or not a timer has run")
		synctest.Wait()
		assert.True(t, fired(m.Lost()))
		assert.Empty(t, b.calls(extend))
	})
}

func TestLoss_ofManyHoldsEachAtItsDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t, locker.WithoutRenewal())
		var ms []*locker.Mutex
		for _, seconds := range []int{7, 3, 9, 3, 1, 20} {
			m := c.Mutex(time.Now().String(), locker.WithTTL(time.Duration(seconds)*time.Second))
			require.NoError(t, m.Lock(t.Context()))
			ms = append(ms, m)
			time.Sleep(50 * time.Millisecond)
		}
		require.NoError(t, ms[0].Unlock(t.Context()))
		for _, m := range []*locker.Mutex{ms[4], ms[1], ms[3], ms[2], ms[5]} {
			<-m.Lost()
			assert.Equal(t, m.Deadline(), time.Now())
		}
	})
}

func TestLoss_isNotDelayedByAnotherHoldsExtend(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t, locker.WithoutRenewal())
		first, second := c.Mutex("1", locker.WithTTL(3*time.Second)), c.Mutex("2", locker.WithTTL(4*time.Second))
		require.NoError(t, first.Lock(t.Context()))
		require.NoError(t, second.Lock(t.Context()))
		time.Sleep(2 * time.Second)
		require.NoError(t, first.Extend(t.Context()))
		for _, m := range []*locker.Mutex{second, first} {
			<-m.Lost()
			assert.Equal(t, m.Deadline(), time.Now())
		}
	})
}

func TestLoss_leavesALeaseThatExpiresAlone(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		b.locked(t, "x", locker.WithoutRenewal())
		time.Sleep(2 * ttl)
		assert.Empty(t, b.calls(release))
	})
}

func TestLoss_releasesALeaseThatGoesOnInItsSession(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := clientOf(t, boastful{&fakeDriver{b: b}}, locker.WithoutRenewal()).Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		<-m.Lost()
		assert.Empty(t, b.calls(release))
		time.Sleep(drift)
		synctest.Wait()
		assert.Len(t, b.calls(release), 1, "nobody may ever unlock it")
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		synctest.Wait()
		assert.Len(t, b.calls(release), 1, "it is given back once")
	})
}

func TestLoss_isSeenWhenARenewalSaysSo(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.locked(t, "x")
		thief := b.steal("x")
		<-m.Lost()
		assert.LessOrEqual(t, time.Since(b.start), ttl/3)
		time.Sleep(ttl)
		assert.Len(t, b.calls(extend), 1)
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		synctest.Wait()
		assert.Equal(t, thief, b.holder("x"))
	})
}

func TestLoss_isSeenWhenTheBackendTells(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		d := &notifier{fakeDriver: &fakeDriver{b: b}}
		m := clientOf(t, d).Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		require.NotNil(t, d.lease.lost)
		d.lease.lost()
		assert.True(t, fired(m.Lost()))
		assert.Zero(t, m.FencingToken())
		require.ErrorIs(t, m.Extend(t.Context()), locker.ErrLost)
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
	})
}

func TestLoss_thatTheBackendTellsAfterUnlockIsNone(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		d := &notifier{fakeDriver: &fakeDriver{b: b}}
		h, err := clientOf(t, d).Mutex("x").TryAcquire(t.Context())
		require.NoError(t, err)
		require.NoError(t, h.Unlock(t.Context()))
		d.lease.lost()
		assert.False(t, fired(h.Lost()))
		require.ErrorIs(t, h.Unlock(t.Context()), locker.ErrNotHeld)
	})
}

func TestLock_whileALostHoldAwaitsItsUnlock(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.locked(t, "x", locker.WithoutRenewal())
		time.Sleep(life) // no timer need have run
		assert.Zero(t, took(func() {
			require.ErrorIs(t, m.Lock(context.Background()), locker.ErrLost)
			require.ErrorIs(t, m.TryLock(context.Background()), locker.ErrLost)
			require.ErrorIs(t, m.Do(context.Background(), nil), locker.ErrLost)
		}))
		assert.Len(t, b.calls(acquire), 1)
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		synctest.Wait()

		require.NoError(t, m.Lock(t.Context()), "after its Unlock the Mutex can be locked again")
		assert.EqualValues(t, 2, m.FencingToken())
		assert.False(t, fired(m.Lost()))
		assert.Equal(t, life, time.Until(m.Deadline()))
		require.NoError(t, m.Unlock(t.Context()))
	})
}

func TestLock_grantedWhileTheFormerHoldIsThoughtToLast(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.locked(t, "x")
		lost := m.Lost()
		second := inBackground(func() error { return m.Lock(t.Context()) })
		time.Sleep(time.Second)
		b.free("x") // as an operator does, or a backend that forgets
		require.ErrorIs(t, <-second, locker.ErrLost)
		assert.True(t, fired(lost), "the grant proves it")
		assert.Less(t, time.Since(b.start), 2*time.Second)
		assert.Zero(t, m.FencingToken())
		assert.Zero(t, b.holder("x"), "the second goroutine holds nothing")
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		require.NoError(t, m.Lock(t.Context()))
	})
}

// A logger may block for long: on a full disk, a pipe that nobody reads.
func TestLoss_doesNotWaitForASlowLogger(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		slow := &logs{Handler: slog.DiscardHandler, wait: func(slog.Record) { <-b.over }}
		c := b.client(t, locker.WithoutRenewal(), locker.WithLogger(slog.New(slow)))
		first, second := c.Mutex("1"), c.Mutex("2")
		require.NoError(t, first.Lock(t.Context()))
		require.NoError(t, second.Lock(t.Context()))
		time.Sleep(life)
		synctest.Wait()
		assert.True(t, fired(first.Lost()))
		assert.True(t, fired(second.Lost()), "two are due together, and one is being logged")
	})
}

// The lock has gone to another, who keeps it: a goroutine that waits on the Mutex whose hold was lost hears
// of the loss, and not only when its turn comes.
func TestLock_thatWaitsHearsOfItsMutexsLoss(t *testing.T) {
	for name, url := range map[string]string{"queue": "mem://pending", "after an Unlock in between": "mem://pending-2"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, err := locker.Open(t.Context(), url, locker.WithTTL(10*time.Second), locker.WithoutRenewal())
				require.NoError(t, err)
				defer c.Close()
				m, other := c.Mutex("x"), c.Mutex("x", locker.WithTTL(time.Hour))
				require.NoError(t, m.Lock(t.Context()))
				if name != "queue" {
					require.NoError(t, m.Unlock(t.Context()))
					require.NoError(t, m.Lock(t.Context()))
				}
				taken := make(chan error, 1)
				go func() { taken <- other.Lock(t.Context()) }()
				synctest.Wait()
				waiting := make(chan error, 1)
				go func() { waiting <- m.Lock(t.Context()) }()
				start := time.Now()
				require.ErrorIs(t, <-waiting, locker.ErrLost)
				assert.LessOrEqual(t, time.Since(start), 10*time.Second+time.Millisecond)
				require.NoError(t, <-taken)
				require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				require.ErrorIs(t, m.Lock(ctx), locker.ErrHeld, "the loss is dealt with, and Lock waits again")
				require.NoError(t, other.Unlock(t.Context()))
				require.NoError(t, m.Lock(t.Context()))
				require.NoError(t, m.Unlock(t.Context()))
			})
		})
	}
}

// slow is a Driver whose process stands still for a while just behind the core's look at the clock.
type slow struct {
	driver.Driver

	pause time.Duration
}

func (d slow) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	l, err := d.Driver.Acquire(ctx, req)
	if err != nil {
		return nil, err
	}
	return &slowLease{Lease: l, pause: d.pause}, nil
}

type slowLease struct {
	driver.Lease

	pause time.Duration
}

func (l *slowLease) Validity() time.Duration {
	left := l.Lease.Validity()
	time.Sleep(l.pause)
	l.pause = 0
	return left
}

func TestLoss_isAtTheDeadlineThoughTheProcessStoodStillWhenTheHoldBegan(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := clientOf(t, slow{&fakeDriver{b: b}, 900 * time.Millisecond}, locker.WithTTL(2*time.Second), locker.WithoutRenewal())
		m := c.Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		<-m.Lost()
		assert.Equal(t, m.Deadline(), time.Now())
	})
}

// lateCounter is a Driver whose leases count their TTL from a little later than the core does, as a quorum's do.
type lateCounter struct{ *fakeDriver }

type lateLease struct{ driver.Lease }

func (d lateCounter) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	l, err := d.fakeDriver.Acquire(ctx, req)
	if err != nil {
		return l, err
	}
	return lateLease{l}, nil
}

func (l lateLease) Validity() time.Duration { return l.Lease.Validity() + time.Millisecond }

func TestLoss_ofALeaseThatEndsByItselfMakesNoRelease(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := clientOf(t, lateCounter{&fakeDriver{b: b}}, locker.WithoutRenewal()).Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		time.Sleep(2 * ttl)
		assert.Empty(t, b.calls(release))
	})
}
