package zookeeper

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/testserver"
)

// driverAt is one as Open makes it.
func driverAt(t *testing.T, s *testserver.ZooKeeperServer) *Driver {
	t.Helper()
	d := newDriver()
	d.servers, d.tick = []string{s.Addr()}, 100*time.Millisecond
	t.Cleanup(func() { _ = d.Close() })
	return d
}

func (d *Driver) sessionsNow() []*session {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Collect(maps.Values(d.sessions))
}

func TestInspect_takesTheSessionThatThereIs(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	d := driverAt(t, s)
	name := fresh()
	l, err := d.Acquire(t.Context(), locker.Request{Name: name, TTL: 10 * time.Second})
	require.NoError(t, err)
	state, err := d.Inspect(t.Context(), name)
	require.NoError(t, err)
	assert.Equal(t, l.Token(), state.Token)
	assert.Equal(t, []*session{l.(*lease).session}, d.sessionsNow())
	require.NoError(t, l.Release(t.Context()))
}

func TestInspect_makesASessionIfThereIsNone(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	d := driverAt(t, s)
	for range 2 {
		_, err := d.Inspect(t.Context(), fresh())
		require.NoError(t, err)
		first := d.sessionsNow()
		require.Len(t, first, 1)
		_, err = d.Inspect(t.Context(), fresh())
		require.NoError(t, err)
		require.Equal(t, first, d.sessionsNow())
		first[0].end() // and it makes another
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
		s.EndSession(d.anySession().id)
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
