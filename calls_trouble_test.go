package locker_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// A hold is lost while another goroutine's attempt is out: that ends with the loss, not with the attempt.
func TestLock_lossEndsAnAttempt(t *testing.T) {
	for name, try := range map[string]func(*locker.Mutex, context.Context) error{
		"lock": (*locker.Mutex).Lock, "try": (*locker.Mutex).TryLock,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *backend) {
				c := b.client(t)
				m := c.Mutex("x", locker.WithoutRenewal())
				require.NoError(t, m.Lock(t.Context()))
				time.Sleep(life - time.Second)
				b.next(acquire, hangs)
				assert.Equal(t, time.Second, took(func() { require.ErrorIs(t, try(m, t.Context()), locker.ErrLost) }))
				require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
				require.NoError(t, m.Lock(t.Context()))
				require.NoError(t, m.Unlock(t.Context()))
			})
		})
	}
}

// The end of ctx is no failure of the backend, and does not hide what that has said last.
func TestLock_endOfCtxIsNoAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		require.NoError(t, c.Mutex("x").Lock(t.Context()))
		ctx := ending(t, 3*time.Second)
		time.AfterFunc(2*time.Second, func() { b.next(acquire, hangs) })
		err := c.Mutex("x").Lock(ctx)
		interruptedBy(ctx, t, err)
		require.ErrorIs(t, err, locker.ErrHeld)
		assert.NotContains(t, err.Error(), "not answered")
	})
}

// generous returns the whole TTL as the validity of its leases.
type generous struct{ *fakeDriver }

type generousLease struct{ driver.Lease }

func (generousLease) Validity() time.Duration { return ttl }

func (d generous) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	l, err := d.fakeDriver.Acquire(ctx, req)
	return generousLease{l}, err
}

func TestLock_deadlineOfAGenerousLeaseCountsFromBeforeTheRequest(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := clientOf(t, generous{&fakeDriver{b: b}})
		m, start := c.Mutex("x"), time.Now()
		b.next(acquire, fault{reply: 3 * time.Second})
		require.NoError(t, m.Lock(t.Context()))
		assert.Equal(t, life, m.Deadline().Sub(start))
		require.NoError(t, m.Unlock(t.Context()))
	})
}

func TestUnlock_justBeforeTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		m := c.Mutex("x", locker.WithoutRenewal())
		require.NoError(t, m.Lock(t.Context()))
		time.Sleep(life - 100*time.Millisecond)
		b.every(release, hangs)
		assert.LessOrEqual(t, took(func() { require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost) }), 100*time.Millisecond)
	})
}

func TestClose_endsAnUnlock(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		m := c.Mutex("x", locker.WithTTL(time.Minute))
		require.NoError(t, m.Lock(t.Context()))
		b.every(release, hangs)
		unlocked := inBackground(func() error { return m.Unlock(context.Background()) })
		time.Sleep(time.Second)
		require.NoError(t, c.Close(), "it has waited for nothing in vain")
		require.Error(t, <-unlocked)
	})
}

// However long an attempt takes, the pauses between two are bounded.
func TestLock_pausesAreBounded(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		require.NoError(t, c.Mutex("x").Lock(t.Context()))
		b.every(acquire, fault{reply: 2 * time.Second})
		require.ErrorIs(t, c.Mutex("x").Lock(ending(t, time.Minute)), locker.ErrHeld)
		assert.Greater(t, len(b.calls(acquire)), 18)
	})
}

// Losses of a Mutex in a row: each ends what waits then, and nothing that comes after its Unlock.
func TestLock_lossesInARow(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		m := c.Mutex("x", locker.WithoutRenewal())
		for range 3 {
			require.NoError(t, m.Lock(t.Context()))
			waits := inBackground(func() error { return m.Lock(context.Background()) })
			time.Sleep(time.Second)
			b.steal("x")
			time.Sleep(time.Second)
			require.ErrorIs(t, m.Extend(t.Context()), locker.ErrLost)
			require.ErrorIs(t, <-waits, locker.ErrLost)
			require.ErrorIs(t, m.Lock(t.Context()), locker.ErrLost)
			require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
			b.free("x")
		}
	})
}

// Who began to wait under an earlier hold hears of the loss of this one, too.
func TestLock_lossOfALaterHoldEndsAnAttempt(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		c := b.client(t)
		m := c.Mutex("x", locker.WithoutRenewal())
		require.NoError(t, m.Lock(t.Context()))
		b.next(acquire, hangs)
		waits := inBackground(func() error { return m.Lock(context.Background()) })
		time.Sleep(time.Second)
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, m.Lock(t.Context()))
		b.steal("x")
		require.ErrorIs(t, m.Extend(t.Context()), locker.ErrLost)
		assert.Zero(t, took(func() { require.ErrorIs(t, <-waits, locker.ErrLost) }))
		require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		b.free("x")
	})
}
