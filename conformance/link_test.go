package conformance

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
)

// echoes is an env whose Lockers are none, and a wire to a server that says what it is told.
func echoes(t *testing.T) (*wire, net.Conn) {
	server, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	var address string
	e := newEnv(t, Harness{TTL: time.Second, Faults: Faults{
		Through: func(_ TB, _ string, _ time.Duration, via func(string) string) locker.Locker {
			address = via(server.Addr().String())
			assert.Equal(t, address, via(server.Addr().String()), "one proxy for each server")
			return robbed{}
		},
	}})
	t.Cleanup(e.close)
	_, w := e.link("A", "name", time.Second)
	return w, dialed(t, address)
}

func dialed(t *testing.T, address string) net.Conn {
	conn, err := net.Dial("tcp4", address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// comesBack sends a byte, and reports whether it comes back within d.
func comesBack(conn net.Conn, d time.Duration) bool {
	_, _ = conn.Write([]byte("x"))
	return arrives(conn, d)
}

func arrives(conn net.Conn, d time.Duration) bool {
	_ = conn.SetReadDeadline(time.Now().Add(d))
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err == nil
}

const soon, moment = 5 * time.Second, 50 * time.Millisecond

func TestWire_keepsBackAndDeliversLate(t *testing.T) {
	w, conn := echoes(t)
	require.True(t, comesBack(conn, soon))
	assert.False(t, w.held())
	w.holdRequests()
	assert.False(t, comesBack(conn, moment))
	assert.True(t, w.held())
	w.release()
	assert.True(t, arrives(conn, soon), "late")
}

func TestWire_passesNewConnections(t *testing.T) {
	w, conn := echoes(t)
	w.holdRequests()
	require.False(t, comesBack(conn, moment))
	w.passNew()
	assert.True(t, comesBack(dialed(t, conn.RemoteAddr().String()), soon))
	assert.True(t, w.held(), "what came before")
	w.release()
	assert.True(t, arrives(conn, soon))
}

func TestWire_losesReplies(t *testing.T) {
	w, conn := echoes(t)
	w.loseReplies()
	assert.False(t, comesBack(conn, moment))
	w.mend()
	assert.False(t, arrives(conn, soon), "it is broken: a later reply would be taken for another")
	assert.True(t, comesBack(dialed(t, conn.RemoteAddr().String()), soon))
}

func TestWire_delays(t *testing.T) {
	w, conn := echoes(t)
	w.delay(moment)
	start := time.Now()
	require.True(t, comesBack(conn, soon))
	assert.GreaterOrEqual(t, time.Since(start), 2*moment, "there and back")
}

func TestWire_resets(t *testing.T) {
	w, conn := echoes(t)
	require.True(t, comesBack(conn, soon))
	w.reset()
	assert.False(t, comesBack(conn, soon))
	assert.True(t, comesBack(dialed(t, conn.RemoteAddr().String()), soon))
}
