package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

var takes = map[string]func(*locker.Mutex, context.Context) error{
	"Lock": (*locker.Mutex).Lock, "TryLock": (*locker.Mutex).TryLock,
}

// The answer to a take is lost, and nobody waits for it any more: the node is removed, while the session lives.
func TestLostReply_ofATakeThatIsGivenUp_leavesNoNode(t *testing.T) {
	t.Parallel()
	for name, take := range takes {
		t.Run(name, func(t *testing.T) {
			f := newFaulty(t, 10*time.Second)
			f.proxy.DropReplies(true)
			ctx, cancel := context.WithCancel(t.Context())
			done := async(func() error { return take(f.client.Mutex("x"), ctx) })
			eventually(t, "the server has applied the take", func() bool { return len(queue(t, f.direct, "x")) == 1 })
			session := sessionOf(t, f.direct, queue(t, f.direct, "x")[0])
			cancel()
			err := await(t, done)
			require.ErrorIs(t, err, context.Canceled)
			require.NotErrorIs(t, err, locker.ErrHeld)
			f.proxy.DropReplies(false)
			f.proxy.ResetConns()
			m := f.other.Mutex("x")
			require.NoError(t, m.Lock(withTimeout(t, 5*time.Second)), "long before the session ends")
			require.NoError(t, m.Unlock(t.Context()))
			m = f.client.Mutex("x")
			require.NoError(t, m.Lock(t.Context()))
			assert.Equal(t, session, sessionOf(t, f.direct, queue(t, f.direct, "x")[0]), "it lives")
			require.NoError(t, m.Unlock(t.Context()))
		})
	}
}

// The answer is lost, and the node is found again: it is one hold and one token.
func TestLostReply_ofATake_isOneHold(t *testing.T) {
	t.Parallel()
	sessions(t).TakeUnanswered(t)
}

func TestLostReply_ofAnUnlock_isASuccess(t *testing.T) {
	t.Parallel()
	sessions(t).UnlockUnanswered(t)
}

// A take is on its way when its caller gives up, and reaches the server when the session has been taken up on another
// connection: it is refused. One that is still here is not forgotten.
func TestLateTake_leavesNothing(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, 5*time.Second)
	for trial := range 4 {
		name := fmt.Sprint("x", trial)
		m := f.client.Mutex(name)
		require.NoError(t, m.Lock(withTimeout(t, patient)))
		require.NoError(t, m.Unlock(t.Context()))
		f.proxy.HoldRequests(true)
		ctx, cancel := context.WithCancel(t.Context())
		locking := async(func() error { return m.Lock(ctx) })
		const smallest = 40 // bytes of a take, and more than a ping has
		eventually(t, "the take is on its way", func() bool { held, _ := f.proxy.Held(); return held > smallest })
		cancel()
		require.ErrorIs(t, await(t, locking), context.Canceled)
		f.proxy.HoldRequests(false)
		if trial%2 == 0 {
			f.proxy.Sever() // the client's side alone
			f.proxy.Restore()
			eventually(t, "the client is back", func() bool {
				err := m.Lock(withTimeout(t, time.Second))
				return err == nil && m.Unlock(t.Context()) == nil
			})
		}
		f.proxy.ReleaseRequests()
		eventually(t, "nothing is left", func() bool { return len(queue(t, f.direct, name)) == 0 })
		time.Sleep(50 * time.Millisecond)
		assert.Empty(t, queue(t, f.direct, name), "nor does anything come back")
		require.NoError(t, f.other.Mutex(name).TryLock(t.Context()))
	}
}

// The link of a holder is cut. Its deadline comes before the server gives the lock to the next.
func TestDeadline_isBeforeTheServers(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*faulty){
		"silently": func(f *faulty) { f.proxy.HoldRequests(true); f.proxy.HoldReplies(true) },
		"loudly":   func(f *faulty) { f.proxy.Sever() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 3 * time.Second // which no pause of a busy machine uses up
			f := newFaulty(t, ttl)
			m, next := f.client.Mutex("x"), f.other.Mutex("x")
			require.NoError(t, m.Lock(t.Context()))
			for range 3 {
				time.Sleep(ttl * 3 / 10)
				require.NoError(t, m.Extend(t.Context()))
			}
			waiting := async(func() error { return next.Lock(t.Context()) })
			eventually(t, "it waits", func() bool { return len(queue(t, f.direct, "x")) == 2 })
			token := m.FencingToken()
			cut(f)
			lost := make(chan time.Time, 1)
			go func() {
				<-m.Lost()
				lost <- time.Now()
			}()
			deadline := m.Deadline()
			require.NoError(t, await(t, waiting))
			taken := time.Now()
			assert.False(t, taken.Before(deadline), "taken %v before the holder's deadline", deadline.Sub(taken))
			assert.False(t, taken.Before(<-lost))
			assert.Greater(t, next.FencingToken(), token)
			require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)
		})
	}
}

// An outage is an error or a wait, and never somebody's lock. TryLock has half a TTL, and says then what it has found.
func TestOutage(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, 2*time.Second)
	m := f.client.Mutex("x")
	back := func() {
		t.Helper()
		eventually(t, "the outage is over", func() bool {
			err := m.Lock(withTimeout(t, patient))
			return err == nil && m.Unlock(t.Context()) == nil
		})
	}
	f.proxy.Sever()
	for _, take := range takes {
		err := take(m, t.Context())
		require.ErrorContains(t, err, "refused")
		for _, no := range []error{locker.ErrHeld, locker.ErrLost, locker.ErrNotHeld, context.DeadlineExceeded} {
			require.NotErrorIs(t, err, no)
		}
	}
	f.proxy.Restore()
	back()

	end := f.silence()
	for _, take := range takes {
		err := take(m, t.Context())
		require.ErrorContains(t, err, "ZooKeeper")
		require.False(t, errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrLost), "%v", err)
	}
	end()
	back()
}
