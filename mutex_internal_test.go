package locker

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
)

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
