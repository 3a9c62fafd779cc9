package zookeeper

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
