package zookeeper_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// Versions before 3.6 may say after a restart that a node's children last changed in an earlier
// transaction than they did.
func TestVersion_thatIsTooOldIsRefused(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	const old = "-83df9301aa5c2a5d284a9940177808c01bc35cef, built on 01/06/2021 20:03 GMT\nLatency min/avg/max: 0/0.0/0\nReceived: 1\n"
	for version, refused := range map[string]bool{"3.4.14": true, "3.5.9": true, "3.5.5.7.1.4": true, "3.6.0": false, "3.10.1": false, "4.0.0": false} {
		says := "Zookeeper version: " + version + old
		w := &wire{says: &says}
		m := w.open(t, s.Addr()).Mutex(version)
		err := m.Lock(withTimeout(t, patient))
		assert.Equal(t, 1, w.asked, version)
		if !refused {
			require.NoError(t, err, version)
			require.NoError(t, m.Unlock(t.Context()))
			continue
		}
		require.ErrorIs(t, err, locker.ErrUnsupported, version)
		require.ErrorContains(t, err, "ZooKeeper "+version)
		require.ErrorContains(t, err, "use version 3.6 or later")
		require.ErrorIs(t, m.TryLock(t.Context()), locker.ErrUnsupported, version)
	}
}

// A server may be told not to say, and what stands before it may not know the question.
func TestVersion_thatIsNotToldIsNoObstacle(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	for name, says := range map[string]string{
		"forbidden": "srvr is not executed because it is not in the whitelist.\n", "closes": "\n", "hangs": "",
		"something else": "HTTP/1.1 400 Bad Request\r\n", "odd": "Zookeeper version: next-generation", "half of 3.10": "Zookeeper version: 3.1", "too long": "Zookeeper version: " + string(make([]byte, 1<<20)),
	} {
		w := &wire{says: &says}
		m := w.open(t, s.Addr()).Mutex(name)
		require.NoError(t, m.Lock(withTimeout(t, patient)), name)
		require.NoError(t, m.Unlock(t.Context()))
	}
}
