package core_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

func TestExtend_lastsOneTTLFromBeforeTheRequest(t *testing.T) {
	each(t, map[string]fault{
		"fast": {}, "slow request": {request: time.Second}, "slow reply": {reply: time.Second},
	}, func(t *testing.T, b *backend, f fault) {
		b.every(extend, f)
		m := b.locked(t, "x", locker.WithoutRenewal())
		token := m.FencingToken()
		for range 10 {
			time.Sleep(ttl / 2)
			sent := time.Now()
			require.NoError(t, m.Extend(t.Context()))
			assert.Equal(t, life, m.Deadline().Sub(sent))
		}
		assert.Equal(t, token, m.FencingToken(), "Extend leaves the token alone")
		assert.False(t, fired(m.Lost()))
		assert.Equal(t, token, b.holder("x"))
	})
}

func TestExtend_deadlineNeverMovesBackwards(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		b.next(extend, fault{reply: 4 * time.Second}, fault{})
		m := b.locked(t, "x", locker.WithoutRenewal())
		slow := inBackground(func() error { return m.Extend(t.Context()) })
		time.Sleep(3 * time.Second)
		require.NoError(t, m.Extend(t.Context()))
		newer := m.Deadline()
		require.NoError(t, <-slow, "its answer is older than what is known")
		assert.Equal(t, newer, m.Deadline())
	})
}

func TestExtend_believesTheLeaseThatLessIsLeft(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.locked(t, "x", locker.WithoutRenewal())
		before := m.Deadline()
		b.next(extend, fault{age: 2 * time.Second}, fault{age: time.Second})
		time.Sleep(time.Second)
		require.NoError(t, m.Extend(t.Context()))
		assert.Equal(t, before, m.Deadline(), "an older contact changes nothing")
		time.Sleep(time.Second)
		require.NoError(t, m.Extend(t.Context()))
		assert.Equal(t, before.Add(time.Second), m.Deadline())
	})
}

// What is not answered by the deadline may have succeeded.
func TestExtend_cutOffByTheDeadlineIsGivenBack(t *testing.T) {
	each(t, map[string]fault{"heeds ctx": {reply: time.Second}, "does not": {reply: time.Second, ignoresCtx: true}}, func(t *testing.T, b *backend, f fault) {
		b.every(extend, f)
		m := b.locked(t, "x", locker.WithoutRenewal())
		time.Sleep(life - 500*time.Millisecond)
		require.ErrorIs(t, m.Extend(t.Context()), locker.ErrLost)
		assert.Equal(t, life, time.Since(b.start), "at the deadline, not when the answer comes")
		assert.True(t, fired(m.Lost()))
		time.Sleep(time.Second)
		assert.Len(t, b.calls(release), 1)
		assert.Zero(t, b.holder("x"))
	})
}

// deafLease is one whose Extend does not heed its context, as a process that stands still does not.
type deafLease struct{ driver.Claim }

func (l deafLease) Extend(ctx context.Context, ttl time.Duration) error {
	return l.Claim.Extend(context.WithoutCancel(ctx), ttl)
}

func TestExtend_answeredAfterTheDeadlineIsGivenBack(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		d := &fakeDriver{b: b, wrap: func(l driver.Claim) driver.Claim { return deafLease{l} }}
		m := clientOf(t, d, locker.WithoutRenewal()).Mutex("x")
		require.NoError(t, m.Lock(t.Context()))
		b.every(extend, fault{reply: 2 * time.Second})
		time.Sleep(life - time.Second)
		require.ErrorIs(t, m.Extend(t.Context()), locker.ErrLost)
		synctest.Wait()
		assert.Len(t, b.calls(release), 1)
		assert.Zero(t, b.holder("x"))
	})
}

func TestExtend_afterAFailureTheOldDeadlineStands(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.locked(t, "x", locker.WithoutRenewal())
		before := m.Deadline()
		b.next(extend, unreachable, unheard)
		time.Sleep(time.Second)
		for range 2 {
			err := m.Extend(t.Context())
			require.ErrorIs(t, err, errRefused)
			require.NotErrorIs(t, err, locker.ErrLost)
		}
		assert.Equal(t, before, m.Deadline())
		assert.NotZero(t, m.FencingToken())
		<-m.Lost()
		assert.Equal(t, before, time.Now())
	})
}

func TestExtend_ofAnEndedContextSendsNothing(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.locked(t, "x", locker.WithoutRenewal())
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errShutdown)
		interruptedBy(ctx, t, m.Extend(ctx))
		synctest.Wait()
		assert.Empty(t, b.calls(extend))
		assert.NotZero(t, m.FencingToken())
	})
}

func TestExtend_abandonedByItsContextTheOldDeadlineStands(t *testing.T) {
	each(t, map[string]fault{
		"hangs": hangs, "hangs, and heeds no ctx": hangIgnoringCtx, "succeeds later": {reply: 2 * time.Second, ignoresCtx: true},
	}, func(t *testing.T, b *backend, f fault) {
		b.every(extend, f)
		m := b.locked(t, "x", locker.WithoutRenewal())
		time.Sleep(time.Second)
		before, ctx := m.Deadline(), ending(t, time.Second)
		assert.Equal(t, time.Second, took(func() {
			err := m.Extend(ctx)
			interruptedBy(ctx, t, err)
			assert.NotErrorIs(t, err, locker.ErrLost)
		}))
		time.Sleep(3 * time.Second)
		assert.Equal(t, before, m.Deadline())
		<-m.Lost()
		assert.Equal(t, before, time.Now())
	})
}

// The caller has left, and nobody hears that the hold was extended.
func TestExtend_abandonedByItsContextIsGivenBackAtTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		b.every(extend, fault{reply: 2 * time.Second})
		m := b.locked(t, "x", locker.WithoutRenewal())
		time.Sleep(ttl / 2)
		require.ErrorIs(t, m.Extend(ending(t, time.Second)), context.DeadlineExceeded)
		<-m.Lost()
		assert.NotZero(t, b.holder("x"), "the backend has extended it")
		time.Sleep(time.Second)
		assert.Zero(t, b.holder("x"))
	})
}

func TestExtend_ofAHungBackendReturnsAfterHalfATTL(t *testing.T) {
	each(t, hanging, func(t *testing.T, b *backend, f fault) {
		b.every(extend, f)
		m := b.locked(t, "x", locker.WithoutRenewal())
		assert.Equal(t, ttl/2, took(func() { noErrorIs(t, m.Extend(context.Background()), locker.ErrLost, context.DeadlineExceeded) }))
		assert.NotZero(t, m.FencingToken(), "the old deadline stands")
	})
}
