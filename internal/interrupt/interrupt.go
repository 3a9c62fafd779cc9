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
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Conns are the connections of a client library. One request at a time can be interrupted on them.
type Conns struct{ watch atomic.Pointer[Watch] }

// Begin begins w, a request whose text contains owner. It returns false if another is under way.
func (c *Conns) Begin(w *Watch, owner []byte) bool {
	w.mu.Lock()
	w.owner, w.over, w.on = owner, false, w.space[:0]
	w.mu.Unlock()
	return c.watch.CompareAndSwap(nil, w)
}

// End ends the request that is under way, whose client library has returned. It returns the replies
// that may still come.
func (c *Conns) End() *Late { return c.watch.Swap(nil).end() }

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
		if s, ok := raw.(syscall.Conn); ok {
			raw, err := s.SyscallConn()
			if err == nil {
				return &socket{wrapped, descriptor{raw, wrapped}}, nil
			}
		}
		return wrapped, nil
	}
}

// Watch is a request that can be interrupted.
type Watch struct {
	owner []byte

	mu    sync.Mutex
	over  bool    // interrupted
	on    []*conn // it was written on, or that were set up for it: one, unless the client library has tried again
	space [1]*conn
}

// Interrupt ends the wait for the reply, or for a connection that is being set up. Nothing more of
// the request is written. A client library drops the connection: to it, the reply did not come in
// time.
func (w *Watch) Interrupt() {
	w.mu.Lock()
	w.over = true
	on := w.on
	w.mu.Unlock()
	for _, c := range on {
		c.interrupt(w)
	}
}

// Asked reports whether w has been written last, and to its end or in part on one of the Conns, and
// no reply has been read: the wait for it can be interrupted.
func (w *Watch) Asked() bool {
	w.mu.Lock()
	n := len(w.on)
	if n == 0 {
		w.mu.Unlock()
		return false
	}
	c := w.on[n-1]
	w.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.watch == w && c.awaited.Load()
}

// writes notes that something of w is about to be written on c. It returns false if w is over.
func (w *Watch) writes(c *conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return false
	}
	if n := len(w.on); n == 0 || w.on[n-1] != c {
		w.on = append(w.on, c)
	}
	return true
}

// end returns the replies to w that may still come.
func (w *Watch) end() (l *Late) {
	w.mu.Lock()
	over, on := w.over, w.on
	w.mu.Unlock()
	if !over {
		return nil
	}
	for _, c := range on {
		if !c.abandoned() {
			continue
		}
		if l == nil {
			l = &Late{}
		}
		l.on = append(l.on, c)
	}
	return l
}

// Late is the replies to a request that was interrupted. The server may be carrying the request
// out, or the network may still be about to deliver it. Its connections are kept until a reply says
// that it has been carried out.
type Late struct{ on []*conn }

// Await waits for the replies: until the client library would have given up each of them if the
// request had not been interrupted, and until then at most. It closes the connections.
func (l *Late) Await(until time.Time) {
	for _, c := range l.on {
		c.awaitReply(until)
	}
}

// Close ends Await.
func (l *Late) Close() {
	for _, c := range l.on {
		_ = c.Conn.Close()
	}
}

// conn is a connection on which one request at a time is made.
type conn struct {
	net.Conn

	conns   *Conns
	awaited atomic.Bool  // the reply to the Watch that was written last
	replied atomic.Int64 // when something was read last, since the epoch; 0: never

	mu          sync.Mutex
	settingUp   bool      // what was written so far sets it up
	watch       *Watch    // that was written last, if that was one
	interrupted bool      // since
	deadline    time.Time // of the client library, for reading
}

// socket is a conn by whose descriptor a client library sees whether it is still open.
type socket struct {
	*conn
	descriptor descriptor
}

// SyscallConn implements [syscall.Conn].
func (s *socket) SyscallConn() (syscall.RawConn, error) { return &s.descriptor, nil }

// descriptor is a socket's.
type descriptor struct {
	syscall.RawConn
	conn *conn
}

// fresh is for how long after a reply a connection counts as open.
const fresh = 20 * time.Millisecond

var epoch = time.Now()

// Read calls look, unless something was read just now. go-redis looks before each request whether
// the connection is still open, which costs a fifth of the processor time of a lone request.
func (d *descriptor) Read(look func(fd uintptr) (done bool)) error {
	if last := d.conn.replied.Load(); last > 0 && time.Since(epoch)-time.Duration(last) < fresh {
		return nil
	}
	return d.RawConn.Read(look)
}

// NetConn returns the connection that c wraps, for client libraries that look for a descriptor.
func (c *conn) NetConn() net.Conn { return c.Conn }

// Write implements [net.Conn].
func (c *conn) Write(b []byte) (int, error) {
	if !c.begin(c.conns.watch.Load(), b) {
		return 0, os.ErrDeadlineExceeded
	}
	return c.Conn.Write(b)
}

// begin notes what b is about, while w is under way. It returns false if b is not to be written.
func (c *conn) begin(w *Watch, b []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.interrupted && c.awaited.Load() {
		return false // the reply that comes would be taken for one to b
	}
	asks := w != nil && (w == c.watch && c.awaited.Load() || bytes.Contains(b, w.owner))
	c.settingUp = c.settingUp && setsUp(b)
	if !asks && !c.settingUp {
		w = nil
	}
	if w != nil && !w.writes(c) {
		return false
	}
	c.watch = w
	c.awaited.Store(asks)
	if c.interrupted { // just when the reply came
		c.interrupted = false
		_ = c.Conn.SetDeadline(time.Time{})
	}
	return true
}

// setsUp reports whether the first command in b is one by which client libraries set up a
// connection, or b is of a TLS handshake.
func setsUp(b []byte) bool {
	const handshake = 22 // in RFC 8446, 5.1
	if len(b) > 0 && b[0] == handshake {
		return true
	}
	parts := bytes.SplitN(b, []byte("\r\n"), 4) // *2, $4, name, the rest
	if len(parts) < 3 {
		return false
	}
	switch string(bytes.ToLower(parts[2])) {
	case "hello", "auth", "client", "select", "readonly", "cluster":
		return true
	default:
		return false
	}
}

// Read implements [net.Conn].
func (c *conn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.replied.Store(int64(time.Since(epoch)))
		if b[0] != push && c.awaited.Load() {
			c.awaited.Store(false)
		}
	}
	return n, err
}

// push begins what a server sends without having been asked.
const push = '>'

// SetReadDeadline implements [net.Conn]. Client libraries call it between Write and Read.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	if c.interrupted {
		return nil
	}
	return c.Conn.SetReadDeadline(t)
}

// interrupt ends what is done on c for w, until the next Write.
func (c *conn) interrupt(w *Watch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watch != w {
		return
	}
	c.interrupted = true
	if c.Conn.SetDeadline(past) != nil {
		_ = c.Conn.Close()
	}
}

var past = time.Unix(1, 0)

// Close implements [net.Conn]. A connection with a Late stays open until that has come.
func (c *conn) Close() error {
	if c.abandoned() {
		return nil
	}
	return c.Conn.Close()
}

// abandoned reports whether c was interrupted before a reply came.
func (c *conn) abandoned() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.interrupted && c.awaited.Load()
}

// awaitReply waits for the reply on a connection that is used no more, and closes it.
func (c *conn) awaitReply(until time.Time) {
	c.mu.Lock()
	if !c.deadline.IsZero() && c.deadline.Before(until) {
		until = c.deadline
	}
	_ = c.Conn.SetReadDeadline(until)
	c.mu.Unlock()
	var b [512]byte
	for c.awaited.Load() {
		if _, err := c.Read(b[:]); err != nil {
			break
		}
	}
	_ = c.Conn.Close()
}
