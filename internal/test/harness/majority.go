package harness

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testwait"
)

// member is a server of several, of which a majority has to know what is decided.
type member interface {
	comparable
	Kill()
	Restart()
}

// Majority is such servers. Its methods are tests.
type Majority[S member] struct {
	URL     string // of all of them; ends with a query that something can be added to
	Servers []S
	Leader  func() S // of those that are up

	Queue func(t testing.TB, name string) []string // the entries of a lock, in order
}

func (g Majority[S]) open(t testing.TB, ttl time.Duration) *locker.Client {
	t.Helper()
	c, err := locker.Open(context.WithoutCancel(t.Context()), g.URL+"ttl="+ttl.String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// LosesItsLeader costs nobody a lock.
func (g Majority[S]) LosesItsLeader(t *testing.T) {
	const ttl = 5 * time.Second
	m, next := g.open(t, ttl).Mutex("x"), g.open(t, ttl).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	token := m.FencingToken()
	waiting := async(func() error { return next.Lock(t.Context()) })
	patience.Until(t, "it waits", func() bool { return len(g.Queue(t, "x")) == 2 })

	old := g.Leader()
	old.Kill()
	require.NotSame(t, old, g.Leader())
	deadline := m.Deadline()
	patience.Until(t, "the hold is renewed, by the new leader", func() bool { return m.Deadline().After(deadline) })
	assert.Equal(t, token, m.FencingToken())
	select {
	case err := <-waiting:
		t.Fatalf("the waiter's Lock returned %v while the lock was held", err)
	default:
	}
	require.NoError(t, m.Unlock(t.Context()))
	require.NoError(t, patience.Result(t, waiting))
	assert.Greater(t, next.FencingToken(), token)
	require.NoError(t, next.Unlock(t.Context()))
	old.Restart()
	patience.Until(t, "nobody stands in the queue", func() bool { return len(g.Queue(t, "x")) == 0 })
}

// IsLost is an outage for waiters and a loss for who holds, and over when the servers are back.
func (g Majority[S]) IsLost(t *testing.T) {
	m, waiter := g.open(t, 2*time.Second).Mutex("x"), g.open(t, 2*time.Second).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	first := m.FencingToken()
	waiting := async(func() error { return waiter.Lock(t.Context()) })
	patience.Until(t, "it waits", func() bool { return len(g.Queue(t, "x")) == 2 })
	down := g.Servers[:len(g.Servers)/2+1]
	for _, s := range down {
		s.Kill()
	}

	err := patience.Result(t, waiting)
	require.Error(t, err, "a waiter rides out half a TTL, and this is more")
	require.NotErrorIs(t, err, locker.ErrHeld)
	err = waiter.TryLock(t.Context())
	require.Error(t, err)
	require.NotErrorIs(t, err, locker.ErrHeld)
	require.ErrorIs(t, waiter.Lock(testwait.Context(t, 50*time.Millisecond)), context.DeadlineExceeded)
	deadline := m.Deadline()
	wantLost(t, m)
	assert.False(t, time.Now().Before(deadline), "not before its time")
	require.ErrorIs(t, m.Unlock(t.Context()), locker.ErrLost)

	for _, s := range down {
		s.Restart()
	}
	patience.Until(t, "it can be locked again, whatever was left behind", func() bool {
		return waiter.Lock(testwait.Context(t, patient)) == nil
	})
	assert.Greater(t, waiter.FencingToken(), first)
	require.NoError(t, waiter.Unlock(t.Context()))
	patience.Until(t, "nobody stands in the queue", func() bool { return len(g.Queue(t, "x")) == 0 })
}

// Contend has holders of the lock "contended" follow each other while disturb is at work, and tells it how often they have.
// Two of them at once, or a token that does not rise, fail the test.
func Contend(t *testing.T, clients []*locker.Client, disturb func(taken func() int)) {
	t.Helper()
	stop, cancel := context.WithCancel(t.Context())
	defer cancel()
	inside := make(chan uint64, 1) // the largest token seen; nobody but a holder takes it out
	inside <- 0
	var taken atomic.Int64
	done := make([]<-chan error, len(clients))
	for i, c := range clients {
		done[i] = async(func() error {
			m := c.Mutex("contended")
			for stop.Err() == nil {
				if m.Lock(stop) != nil {
					continue // an outage is an error, or a wait
				}
				select {
				case last := <-inside:
					token := m.FencingToken()
					if token != 0 { // else it is lost already
						assert.Greater(t, token, last)
					}
					time.Sleep(2 * time.Millisecond)
					taken.Add(1)
					inside <- max(last, token)
				default:
					select {
					case <-m.Lost():
					default:
						t.Error("two hold at once")
					}
				}
				_ = m.Unlock(context.WithoutCancel(stop))
			}
			return nil
		})
	}
	disturb(func() int { return int(taken.Load()) })
	cancel()
	for _, d := range done {
		require.NoError(t, patience.Result(t, d))
	}
	assert.Positive(t, <-inside)
}
