package zookeeper

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testserver"
)

// The server has ended the session, of which the Client has yet to hear.
func TestInspect_whenItsSessionHasEnded(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	d := driverOf(t)
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
