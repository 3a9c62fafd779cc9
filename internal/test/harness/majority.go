package harness

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

// member is a server of several, of which a majority has to know what is decided.
type member interface {
	comparable
	Kill()
	Restart()
}

// Majority is such servers. Its methods are tests.
type Majority[S member] struct {
	URL    string                                   // of all of them; ends with a query that something can be added to
	Leader func() S                                 // of those that are up
	Queue  func(t testing.TB, name string) []string // the entries of a lock, in order
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
	const ttl = 15 * time.Second // of which a waiter rides out a half
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
