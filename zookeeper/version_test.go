package zookeeper_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/test/testserver"
)

// disguised stands before a server, and answers for it when it is asked for its version.
type disguised struct {
	net.Listener
	says  string // "": it hangs
	asked atomic.Int64
	done  chan struct{}
	wg    sync.WaitGroup
}

func disguise(t testing.TB, server, says string) *disguised {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	d := &disguised{Listener: listener, says: says, done: make(chan struct{})}
	d.wg.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			d.wg.Go(func() { d.serve(client, server) })
		}
	})
	t.Cleanup(func() {
		close(d.done)
		_ = listener.Close()
		d.wg.Wait()
	})
	return d
}

func (d *disguised) serve(client net.Conn, server string) {
	defer client.Close()
	word := make([]byte, 4)
	if _, err := io.ReadFull(client, word); err != nil {
		return
	}
	if string(word) == "srvr" {
		d.asked.Add(1)
		if d.says == "" {
			<-d.done
		}
		_, _ = io.WriteString(client, d.says)
		return
	}
	behind, err := net.Dial("tcp4", server)
	if err != nil {
		return
	}
	defer behind.Close()
	if _, err := behind.Write(word); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(behind, client)
		_ = behind.Close()
	}()
	_, _ = io.Copy(client, behind)
}

func (d *disguised) url() string { return "zookeeper://" + d.Addr().String() }

// Versions before 3.6 may say after a restart that a node's children last changed in an earlier
// transaction than they did.
func TestVersion_thatIsTooOldIsRefused(t *testing.T) {
	t.Parallel()
	s := testserver.SharedZooKeeper(t)
	const old = "-83df9301aa5c2a5d284a9940177808c01bc35cef, built on 01/06/2021 20:03 GMT\nLatency min/avg/max: 0/0.0/0\nReceived: 1\n"
	for version, refused := range map[string]bool{"3.4.14": true, "3.5.9": true, "3.5.5.7.1.4": true, "3.6.0": false, "3.10.1": false, "4.0.0": false} {
		d := disguise(t, s.Addr(), "Zookeeper version: "+version+old)
		m := openURL(t, d.url(), "ttl=30s").Mutex(version)
		err := m.Lock(withTimeout(t, patient))
		assert.EqualValues(t, 1, d.asked.Load(), version)
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
		d := disguise(t, s.Addr(), says)
		m := openURL(t, d.url(), "ttl=30s").Mutex(name)
		require.NoError(t, m.Lock(withTimeout(t, patient)), name)
		require.NoError(t, m.Unlock(t.Context()))
	}
}
