package zookeeper

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/testserver"
)

// driverAt is one as Open makes it.
func driverAt(t *testing.T, s *testserver.ZooKeeperServer) *Driver {
	t.Helper()
	d := newDriver()
	d.servers, d.tick = []string{s.Addr()}, 100*time.Millisecond
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func TestInspect_takesTheSessionThatThereIs(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	d := driverAt(t, s)
	name := fresh()
	l, err := d.Acquire(t.Context(), driver.Request{Name: name, TTL: 10 * time.Second})
	require.NoError(t, err)
	state, err := d.Inspect(t.Context(), name)
	require.NoError(t, err)
	assert.Equal(t, l.Token(), state.Token)
	_, made := d.sessions.Find(d.readerTTL())
	assert.False(t, made, "another session")
	require.NoError(t, l.Release(t.Context()))
}

func TestInspect_makesASessionIfThereIsNone(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	d := driverAt(t, s)
	for range 2 {
		_, err := d.Inspect(t.Context(), fresh())
		require.NoError(t, err)
		first, ok := d.sessions.Any()
		require.True(t, ok)
		_, err = d.Inspect(t.Context(), fresh())
		require.NoError(t, err)
		again, ok := d.sessions.Any()
		require.True(t, ok)
		require.Same(t, first, again)
		first.End() // and it makes another
	}
}

// The server has ended the session, of which the Client has yet to hear.
func TestInspect_whenItsSessionHasEnded(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	d := driverAt(t, s)
	for range 3 {
		_, err := d.Inspect(t.Context(), fresh())
		require.NoError(t, err)
		session, ok := d.sessions.Any()
		require.True(t, ok)
		s.EndSession(session.id)
	}
	_, err := d.Inspect(t.Context(), fresh())
	require.NoError(t, err)
}

func TestInspect_asksForASessionThatServersWithALongTickGrant(t *testing.T) {
	d := newDriver()
	defer func() { _ = d.Close() }()
	assert.Equal(t, sessionTimeout, d.readerTTL())
	d.tick = 10 * time.Second
	assert.Equal(t, 40*time.Second, d.readerTTL())
}
