package testserver

import (
	"io"
	"net"
	"sync"
	"testing"
)

// gate accepts connections until the test ends, and closes those that are open then.
type gate struct {
	addr    string
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
}

// openGate has serve handle each connection that is accepted on a free port. The connection is closed
// when serve returns.
func openGate(t testing.TB, what string, listen func(network, addr string) (net.Listener, error), serve func(g *gate, client net.Conn)) *gate {
	t.Helper()
	g := &gate{conns: map[net.Conn]struct{}{}}
	var listener net.Listener
	withPort(t, what, func(port int) (err error) {
		g.addr = loopback(port)
		listener, err = listen("tcp4", g.addr)
		return err
	})
	g.running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			g.running.Go(func() {
				defer g.drop(client)
				if g.keep(client) {
					serve(g, client)
				}
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		g.mu.Lock()
		g.closed = true
		for conn := range g.conns {
			_ = conn.Close()
		}
		g.mu.Unlock()
		g.running.Wait()
	})
	return g
}

// dial connects to a server, until drop.
func (g *gate) dial(addr string) (net.Conn, error) {
	conn, err := net.Dial("tcp4", addr)
	if err != nil {
		return nil, err
	}
	if !g.keep(conn) {
		g.drop(conn)
		return nil, net.ErrClosed
	}
	return conn, nil
}

// keep has conn closed at the end of the test. It returns false after that.
func (g *gate) keep(conn net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.conns[conn] = struct{}{}
	return !g.closed
}

func (g *gate) drop(conn net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.conns, conn)
	_ = conn.Close()
}

// join forwards both ways until either end closes its connection.
func (g *gate) join(client, server net.Conn) {
	var both sync.WaitGroup
	forward := func(to, from net.Conn) {
		_, _ = io.Copy(to, from)
		_ = to.Close()
		_ = from.Close()
	}
	both.Go(func() { forward(server, client) })
	both.Go(func() { forward(client, server) })
	both.Wait()
}
