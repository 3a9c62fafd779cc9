// Package interrupt ends the wait for a reply on a connection that a client library keeps for
// itself.
//
// The connection is found by what is written on it: the owner of the lock that the request is
// about. The wrapped connection sees each Write, whatever the client library does around it.
package interrupt

import (
	"bytes"
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Conns are the connections of a client library. One request at a time can be interrupted on them.
type Conns struct {
	watch atomic.Pointer[Watch]

	mu        sync.Mutex
	settingUp map[*conn]struct{} // what was written on them so far sets them up
}

// Watch is a request that can be interrupted.
type Watch struct {
	conns *Conns
	owner []byte

	mu    sync.Mutex
	over  bool
	on    []*conn // that owner was written on: one, unless the client library has tried again
	space [1]*conn
}

// Begin begins w, a request whose text contains owner. No other Watch is to be under way.
func (c *Conns) Begin(w *Watch, owner []byte) {
	w.conns, w.owner = c, owner
	w.on = w.space[:0]
	c.watch.Store(w)
}

// End ends the Watch that is under way.
func (c *Conns) End() { c.watch.Store(nil) }

// Interrupt ends the wait for the reply, now or when it begins. A client library drops a connection
// that was interrupted: to it, the reply did not come in time. The request may also be waiting for a
// connection that is being set up, be it for a second try: all of those are interrupted.
func (w *Watch) Interrupt() {
	w.mu.Lock()
	w.over = true
	on := w.on
	w.mu.Unlock()
	for _, c := range on {
		c.interrupt(w)
	}
	w.conns.mu.Lock()
	defer w.conns.mu.Unlock()
	for c := range w.conns.settingUp {
		c.interrupt(nil)
	}
}

// written notes that the request was written on c.
func (w *Watch) written(c *conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.on = append(w.on, c)
}

func (w *Watch) isOver() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.over
}

// Dialer is what client libraries connect by.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// Dialer returns a Dialer that connects by dial. Its connections are among c.
func (c *Conns) Dialer(dial Dialer) Dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		raw, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		wrapped := &conn{Conn: raw, conns: c, settingUp: true}
		c.mu.Lock()
		if c.settingUp == nil {
			c.settingUp = map[*conn]struct{}{}
		}
		c.settingUp[wrapped] = struct{}{}
		c.mu.Unlock()
		if s, ok := raw.(syscall.Conn); ok {
			return &socket{wrapped, s}, nil
		}
		return wrapped, nil
	}
}

// isSetUp notes that c is set up, or closed.
func (c *Conns) isSetUp(which *conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.settingUp, which)
}

// conn is a connection on which one request at a time is made.
type conn struct {
	net.Conn

	conns *Conns

	mu        sync.Mutex
	settingUp bool
	useless   bool   // interrupted while it was set up
	watch     *Watch // of the request that was written last, if it has one
}

// socket is a conn by whose descriptor a client library sees whether it is still open.
type socket struct {
	*conn
	syscall.Conn
}

// NetConn returns the connection that c wraps, for client libraries that look for a descriptor.
func (c *conn) NetConn() net.Conn { return c.Conn }

// Close implements [net.Conn].
func (c *conn) Close() error {
	c.conns.isSetUp(c)
	return c.Conn.Close()
}

// Write implements [net.Conn].
func (c *conn) Write(b []byte) (int, error) {
	w := c.conns.watch.Load()
	if w != nil && !bytes.Contains(b, w.owner) {
		w = nil
	}
	c.mu.Lock()
	c.watch = w
	first := c.settingUp && !setsUp(b)
	if first {
		c.settingUp = false
	}
	c.mu.Unlock()
	if first {
		c.conns.isSetUp(c)
	}
	if w != nil {
		w.written(c)
	}
	return c.Conn.Write(b)
}

// setsUp reports whether the first command in b is one by which client libraries set up a
// connection.
func setsUp(b []byte) bool {
	parts := bytes.SplitN(b, []byte("\r\n"), 4) // *2, $4, name, the rest
	if len(parts) < 3 {
		return false
	}
	switch string(bytes.ToLower(parts[2])) {
	case "hello", "auth", "client", "select":
		return true
	default:
		return false
	}
}

// SetReadDeadline implements [net.Conn]. Client libraries call it between Write and Read.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.useless || c.watch != nil && c.watch.isOver() {
		t = past
	}
	return c.Conn.SetReadDeadline(t)
}

var past = time.Unix(1, 0)

// interrupt ends a Read of the reply to the request of w, and those that come before the next
// Write. With nil it ends those of a connection that is being set up.
func (c *conn) interrupt(w *Watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case w == nil && c.settingUp:
		c.useless = true
	case w == nil || c.watch != w:
		return
	}
	_ = c.Conn.SetReadDeadline(past)
}
