package fault

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/harness"
	"github.com/go-locker/locker/conformance/internal/party"

	"github.com/go-locker/locker/internal/test/testwait"
)

// echoes returns a Wire to a server that echoes, and a connection through it.
func echoes(t *testing.T) (*Wire, net.Conn) {
	server := testwait.Closed(net.Listen("tcp4", "127.0.0.1:0"))(t)
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
	e := party.NewEnv(t, harness.Harness{TTL: time.Second, Faults: harness.Faults{
		Through: func(_ harness.TB, _ string, _ time.Duration, via func(string) string) locker.Locker {
			address = via(server.Addr().String())
			assert.Equal(t, address, via(server.Addr().String()), "one proxy for each server")
			return struct{ locker.Locker }{}
		},
	}})
	t.Cleanup(e.Close)
	_, w := Link(e, "A", "name", time.Second)
	return w, testwait.Closed(net.Dial("tcp4", address))(t)
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

// What a proxy does is tested where the proxies are.
func TestWire_holdsTheLastRequests(t *testing.T) {
	for last, passed := range map[int]int{0: 0, 1: 2} { // of three
		w, conn := echoes(t)
		require.True(t, comesBack(conn, soon))
		assert.Equal(t, 1, w.Requests())
		w.HoldLast(last, 3)
		for range passed {
			require.True(t, comesBack(conn, soon))
		}
		assert.False(t, w.Held())
		assert.False(t, comesBack(conn, moment))
		assert.True(t, w.Held())
		w.PassNew()
		another := testwait.Closed(net.Dial("tcp4", conn.RemoteAddr().String()))(t)
		assert.True(t, comesBack(another, soon), "on a new connection")
		assert.True(t, w.Held(), "what came before")
		assert.Equal(t, passed+3, w.Requests())
		if last == 0 {
			w.Seal()
			w.Abandon()
			assert.False(t, arrives(conn, soon), "its end is closed")
			assert.True(t, w.Held(), "what was sent is yet to arrive")
			continue
		}
		w.Release()
		assert.True(t, arrives(conn, soon), "late")
	}
}

// TestHarm_fatalfInItsEndIsTheHarnesss: a server that does not start again ends the test, and not
// the program.
func TestHarm_fatalfInItsEndIsTheHarnesss(t *testing.T) {
	e := party.NewEnv(t, harness.Harness{TTL: time.Second})
	calls := 0
	undo := make(chan func(), 1)
	_, verdict := e.Trial.Run(time.Minute, func() {
		f := Harm(e, func(t harness.TB) func() {
			return func() {
				calls++
				t.Fatalf("it does not start again")
			}
		})
		undo <- f
		f()
	})
	(<-undo)()
	e.Close()
	assert.Equal(t, 1, calls)
	var bad *engine.Fatal
	require.ErrorAs(t, verdict, &bad)
	assert.Equal(t, "it does not start again", bad.Message)
}
