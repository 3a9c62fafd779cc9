package netfault_test

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/go-locker/locker/internal/netfault"

	"github.com/go-locker/locker/internal/test/testwait"
)

// echo is a proxy to a server that sends back what it gets, and counts it.
func echo(t *testing.T) (*netfault.Proxy, *atomic.Int64) {
	t.Helper()
	arrived := new(atomic.Int64)
	server := testwait.Closed(net.Listen("tcp4", "127.0.0.1:0"))(t)
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				for b := make([]byte, 1); ; {
					if _, err := io.ReadFull(conn, b); err != nil {
						return
					}
					arrived.Add(1)
					_, _ = conn.Write(b)
				}
			}()
		}
	}()
	p, err := netfault.Start("127.0.0.1:0", server.Addr().String())
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p, arrived
}

func dial(t *testing.T, p *netfault.Proxy) net.Conn {
	t.Helper()
	return testwait.Closed(net.Dial("tcp4", p.Addr()))(t)
}

// ask sends n bytes, and reports whether all come back within d.
func ask(t *testing.T, conn net.Conn, n int, d time.Duration) bool {
	t.Helper()
	_, err := conn.Write(make([]byte, n))
	require.NoError(t, err)
	_ = conn.SetReadDeadline(time.Now().Add(d))
	_, err = io.ReadFull(conn, make([]byte, n))
	return err == nil
}

const soon, moment = 5 * time.Second, 50 * time.Millisecond

func TestProxy_countsRequests(t *testing.T) {
	p, _ := echo(t)
	a, b := dial(t, p), dial(t, p)
	require.True(t, ask(t, a, 1, soon))
	require.True(t, ask(t, a, 1, soon))
	require.True(t, ask(t, b, 1, soon))
	assert.Equal(t, 3, p.Requests())
	p.HoldRequests(true)
	for range 3 {
		require.False(t, ask(t, b, 1, moment))
	}
	assert.Equal(t, 4, p.Requests(), "what is sent before a reply is one")
}

func TestProxy_holdsAfterSoManyRequests(t *testing.T) {
	p, arrived := echo(t)
	a, b := dial(t, p), dial(t, p)
	var left atomic.Int64
	left.Store(2)
	p.HoldRequestsAfter(&left)
	require.True(t, ask(t, a, 1, soon))
	require.True(t, ask(t, b, 1, soon))
	assert.False(t, ask(t, a, 1, moment), "the third")
	assert.False(t, ask(t, dial(t, p), 1, moment), "what follows on another connection")
	p.HoldRequestsAfter(nil)
	assert.False(t, ask(t, a, 1, moment), "it is behind what is kept back")
	assert.True(t, ask(t, b, 1, soon))
	p.ReleaseRequests()
	eventually(t, arrived, 6)
	assert.True(t, ask(t, dial(t, p), 1, soon), "all pass")
}

// eventually waits until so many bytes have come to the server, and no more.
func eventually(t *testing.T, arrived *atomic.Int64, n int64) {
	t.Helper()
	require.Eventually(t, func() bool { return arrived.Load() >= n }, soon, time.Millisecond)
	assert.Equal(t, n, arrived.Load())
}

// Requests that are kept back arrive late, in order, on whichever connection and however that ends,
// and no others are late.
func TestProxy_keepsRequestsBack(t *testing.T) {
	for name, end := range map[string]func(p *netfault.Proxy, conn net.Conn){
		"its client waits": func(*netfault.Proxy, net.Conn) {},
		"its client closes, the rudest way": func(_ *netfault.Proxy, conn net.Conn) {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		},
		"Sever": func(p *netfault.Proxy, conn net.Conn) {
			p.Sever()
			wantEnd(t, conn)
			require.NoError(t, p.Restore())
		},
		"AbandonHeld": func(p *netfault.Proxy, conn net.Conn) {
			p.AbandonHeld()
			wantEnd(t, conn)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, arrived := echo(t)
			conn, other := dial(t, p), dial(t, p)
			require.True(t, ask(t, other, 1, soon))
			p.HoldRequests(true)
			require.False(t, ask(t, conn, 1, moment))
			heldBack(t, p, 1, 0)
			p.HoldRequests(false)
			require.False(t, ask(t, conn, 1, moment), "it must not overtake")
			heldBack(t, p, 2, 0)
			end(p, conn)
			if name == "Sever" {
				other = dial(t, p)
			}
			assert.True(t, ask(t, other, 1, soon), "it has nothing kept back")
			eventually(t, arrived, 2)
			p.ReleaseRequests()
			eventually(t, arrived, 4)
		})
	}
}

func TestProxy_losesWhatFollowsWhatIsSealed(t *testing.T) {
	p, arrived := echo(t)
	a := dial(t, p)
	p.HoldRequests(true)
	require.False(t, ask(t, a, 1, moment))
	p.SealHeld()
	p.HoldRequests(false)
	require.False(t, ask(t, a, 1, moment), "it is lost")
	assert.True(t, ask(t, dial(t, p), 1, soon))
	p.ReleaseRequests()
	eventually(t, arrived, 2)
	assert.False(t, ask(t, a, 2, moment), "nothing may follow what was lost")
	assert.EqualValues(t, 2, arrived.Load())
}

// heldBack waits until the proxy keeps back so many bytes of requests and of replies, at least.
func heldBack(t *testing.T, p *netfault.Proxy, requests, replies int) {
	t.Helper()
	require.Eventually(t, func() bool { a, b := p.Held(); return a >= requests && b >= replies }, soon, time.Millisecond)
}

// wantEnd waits until a connection ends.
func wantEnd(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(soon))
	if _, err := conn.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("reading: %v, want the end of the connection", err)
	}
}

func TestProxy_dropsReplies(t *testing.T) {
	p, arrived := echo(t)
	conn := dial(t, p)
	require.True(t, ask(t, conn, 1, soon))
	p.DropReplies(true)
	require.False(t, ask(t, conn, 1, moment))
	eventually(t, arrived, 2)
	p.DropReplies(false)
	assert.False(t, ask(t, conn, 1, moment), "its answer must not pass for the one before")
	assert.True(t, ask(t, dial(t, p), 1, soon))
}

func TestProxy_holdsReplies(t *testing.T) {
	p, _ := echo(t)
	conn := dial(t, p)
	p.HoldReplies(true)
	require.False(t, ask(t, conn, 2, moment))
	require.False(t, ask(t, conn, 3, moment))
	heldBack(t, p, 0, 5)
	p.ReleaseReplies()
	_ = conn.SetReadDeadline(time.Now().Add(soon))
	_, err := io.ReadFull(conn, make([]byte, 5))
	assert.NoError(t, err)
}

func TestProxy_refusesNewConnections(t *testing.T) {
	p, _ := echo(t)
	conn := dial(t, p)
	require.True(t, ask(t, conn, 1, soon))
	p.Refuse()
	assert.True(t, ask(t, conn, 1, soon), "it is open")
	_, err := net.Dial("tcp4", p.Addr())
	require.Error(t, err)
	require.NoError(t, p.Restore())
	assert.True(t, ask(t, dial(t, p), 1, soon))
}

func TestProxy_hushesOpenConnections(t *testing.T) {
	p, arrived := echo(t)
	conn := dial(t, p)
	require.True(t, ask(t, conn, 1, soon))
	p.HushConns()
	assert.False(t, ask(t, conn, 1, moment))
	assert.True(t, ask(t, dial(t, p), 1, soon), "it is new")
	assert.EqualValues(t, 2, arrived.Load())
	p.ReleaseRequests()
	assert.False(t, ask(t, conn, 1, moment), "it is over")
	p.ResetConns()
	wantEnd(t, conn)
}

func TestProxy_resetLosesWhatIsHeld(t *testing.T) {
	p, arrived := echo(t)
	idle, waiting := dial(t, p), dial(t, p)
	require.True(t, ask(t, idle, 1, soon))
	require.True(t, ask(t, waiting, 1, soon))
	p.HoldRequests(true)
	require.False(t, ask(t, waiting, 1, moment))
	heldBack(t, p, 1, 0)
	p.ResetConns()
	wantEnd(t, idle)
	wantEnd(t, waiting)
	p.ReleaseRequests()
	p.HoldRequests(false)
	assert.True(t, ask(t, dial(t, p), 1, soon))
	assert.EqualValues(t, 3, arrived.Load())
}

// What may still be open, or held back, or not answered, must not hold up the end.
func TestProxy_closeLeavesNothing(t *testing.T) {
	stopped := testwait.Closed(net.Listen("tcp4", "127.0.0.1:0"))(t) // the kernel takes connections for it
	others := goleak.IgnoreCurrent()
	p, err := netfault.Start("127.0.0.1:0", stopped.Addr().String())
	require.NoError(t, err)
	require.False(t, ask(t, dial(t, p), 1, moment))
	p.HoldRequests(true)
	p.HoldReplies(true)
	require.False(t, ask(t, dial(t, p), 1, moment))
	heldBack(t, p, 1, 0)
	p.Close()
	_, err = net.Dial("tcp4", p.Addr())
	require.Error(t, err, "the proxy still accepts connections")
	assert.NoError(t, goleak.Find(others))
}
