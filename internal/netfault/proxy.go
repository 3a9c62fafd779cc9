// Package netfault makes the network between clients and a server fail.
package netfault

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Proxy stands between clients and a server and makes the network between them fail. Its faults may
// be switched on and off while connections are open, and, but for Restore, from any goroutine.
type Proxy struct {
	target, listen string
	ctx            context.Context // ends attempts to reach the target
	cancel         context.CancelFunc
	wg             sync.WaitGroup

	mu       sync.Mutex
	changed  sync.Cond // any field below, or any of a flow's
	listener net.Listener
	severed  int // how often
	links    map[*link]struct{}
	requests direction
	replies  direction
	asked    int           // requests that came
	left     *atomic.Int64 // how many requests may yet pass; nil: all
}

// direction is what the proxy does to all that flows one way.
type direction struct {
	hold, drop bool
	delay      time.Duration
}

// Start starts to forward connections from listen to target, "host:port" each. The port 0 stands for any that is free.
func Start(listen, target string) (*Proxy, error) {
	p := &Proxy{target: target, listen: listen, links: make(map[*link]struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.changed.L = &p.mu
	if err := p.Restore(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// Close breaks all connections, and returns when nothing of the proxy is left.
func (p *Proxy) Close() {
	p.cancel()
	p.Sever()
	p.ResetConns()
	p.wg.Wait()
}

// Addr returns the proxy's own "host:port". It stays the same through Sever and Restore.
func (p *Proxy) Addr() string { return p.listen }

// Sever closes every connection to clients and refuses new ones. The server sees its ends close;
// what is held back on the way to it stays so, and can still be released.
func (p *Proxy) Sever() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.severed++
	p.refuse()
	for l := range p.links {
		_ = l.client.Close()
	}
}

// Refuse refuses new connections until Restore. Those that are open go on.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse()
}

// refuse needs p.mu.
func (p *Proxy) refuse() {
	if p.listener != nil {
		_ = p.listener.Close()
		p.listener = nil
	}
}

// HushConns loses all that is sent on the connections that are open, either way, and their end: as
// a firewall does that has lost its table. New ones work.
func (p *Proxy) HushConns() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.requests.hushed, l.replies.hushed = true, true
	}
}

// ResetConns breaks every connection at both ends with a TCP reset. What is held back is lost.
func (p *Proxy) ResetConns() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.reset()
	}
	p.changed.Broadcast()
}

// DropReplies lets requests reach the server, while it is on, and swallows what it answers. A
// connection that has lost a reply gets no later one either, even after the fault is switched off:
// a client would take it for the answer to something else.
func (p *Proxy) DropReplies(on bool) { p.set(&p.replies.drop, on) }

// Delay has all that comes from now on arrive later, by at least so much each way; 0 ends that.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests.delay, p.replies.delay = d, d
}

// HoldRequests keeps back, while it is on, what clients send. Switched off, it lets new requests
// through, except on connections that have some kept back already: those wait for ReleaseRequests,
// and arrive late then even if the client has closed its connection long ago.
func (p *Proxy) HoldRequests(on bool) { p.set(&p.requests.hold, on) }

// HoldRequestsAfter lets as many requests pass as left says, which it counts down, and keeps back those that follow, and what comes
// behind one on its connection. Several proxies may share left. A nil left lets new requests pass, as HoldRequests(false) does.
func (p *Proxy) HoldRequestsAfter(left *atomic.Int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = left
}

// Requests returns how many requests have come from clients. What a client sends on a connection before the first reply to it
// is one request, and so is what it sends after a reply and before the next.
func (p *Proxy) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked
}

// SealHeld loses what clients send from now on behind requests that are kept back. Those can still be released.
func (p *Proxy) SealHeld() { p.eachHeld(func(l *link) { l.requests.mute = true }) }

// AbandonHeld is SealHeld, and closes the client's end of each connection that has requests kept back.
func (p *Proxy) AbandonHeld() {
	p.eachHeld(func(l *link) {
		l.requests.mute = true
		_ = l.client.Close()
	})
}

func (p *Proxy) eachHeld(do func(*link)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.requests.held {
			do(l)
		}
	}
}

// HoldReplies does to what the server answers what HoldRequests does to requests, until ReleaseReplies.
func (p *Proxy) HoldReplies(on bool) { p.set(&p.replies.hold, on) }

// ReleaseRequests switches HoldRequests and HoldRequestsAfter off and delivers all that was kept back, in order within
// each connection.
func (p *Proxy) ReleaseRequests() {
	p.release(&p.requests, func(l *link) *flow { return l.requests })
}

// ReleaseReplies switches HoldReplies off and delivers all that was kept back.
func (p *Proxy) ReleaseReplies() {
	p.release(&p.replies, func(l *link) *flow { return l.replies })
}

// Held returns how many bytes are kept back each way, for tests that wait until there are some.
func (p *Proxy) Held() (requests, replies int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.requests.held {
			requests += len(l.requests.queue)
		}
		if l.replies.held {
			replies += len(l.replies.queue)
		}
	}
	return requests, replies
}

// sleep ends with the proxy.
func (p *Proxy) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.ctx.Done():
	}
}

func (p *Proxy) set(fault *bool, on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	*fault = on
}

func (p *Proxy) release(d *direction, pick func(*link) *flow) {
	p.mu.Lock()
	defer p.mu.Unlock()
	d.hold = false
	if d == &p.requests {
		p.left = nil
	}
	for l := range p.links {
		f := pick(l)
		f.late = f.late || f.held
		f.held = false
	}
	p.changed.Broadcast()
}

// Restore accepts connections again after Sever or Refuse. Other faults stay as they are.
func (p *Proxy) Restore() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.listener != nil {
		return nil
	}
	listener, err := net.Listen("tcp4", p.listen)
	for range 100 { // a process that is being started has our sockets from its fork to its exec, the closed one too
		if !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
		time.Sleep(10 * time.Millisecond)
		listener, err = net.Listen("tcp4", p.listen)
	}
	if err != nil {
		return err
	}
	p.listener, p.listen = listener, listener.Addr().String()
	severed := p.severed
	p.wg.Go(func() { p.accept(listener, severed) })
	return nil
}

func (p *Proxy) accept(listener net.Listener, severed int) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return // severed
		}
		p.wg.Go(func() { p.serve(client.(*net.TCPConn), severed) })
	}
}

func (p *Proxy) serve(client *net.TCPConn, severed int) {
	var dialer net.Dialer
	server, err := dialer.DialContext(p.ctx, "tcp", p.target)
	if err != nil {
		// To the client this looks as if it had spoken to the absent server itself, a little late.
		_ = client.SetLinger(0)
		_ = client.Close()
		return
	}
	l := newLink(p, client, server.(*net.TCPConn))
	p.mu.Lock()
	p.links[l] = struct{}{}
	if p.severed != severed { // while dialling
		l.reset()
	}
	p.mu.Unlock()

	l.run()

	p.mu.Lock()
	delete(p.links, l)
	p.mu.Unlock()
}

// link is one connection of a client and the connection to the server that continues it.
type link struct {
	client, server    *net.TCPConn
	requests, replies *flow

	asked bool // the client has sent something since the last reply; guarded by p.mu
}

func newLink(p *Proxy, client, server *net.TCPConn) *link {
	l := &link{
		client: client, server: server,
		requests: &flow{p: p, rule: &p.requests, src: client, dst: server},
		replies:  &flow{p: p, rule: &p.replies, src: server, dst: client},
	}
	l.requests.came, l.replies.came = l.request, l.reply
	return l
}

// request counts what the client sends first, or first after a reply. It needs p.mu, as reply does.
func (l *link) request() {
	if l.asked {
		return
	}
	l.asked = true
	p := l.requests.p
	p.asked++
	if p.left != nil && p.left.Add(-1) < 0 {
		l.requests.held = true
	}
}

func (l *link) reply() { l.asked = false }

func (l *link) run() {
	var wg sync.WaitGroup
	for _, f := range []*flow{l.requests, l.replies} {
		wg.Go(f.receive)
		wg.Go(f.deliver)
	}
	wg.Wait()
	_ = l.client.Close()
	_ = l.server.Close()
}

// reset needs p.mu. The caller wakes the flows afterwards.
func (l *link) reset() {
	for _, conn := range []*net.TCPConn{l.client, l.server} {
		_ = conn.SetLinger(0)
		_ = conn.Close()
	}
	l.requests.cut, l.replies.cut = true, true
}

// flow carries one way of a link. It takes in data as it comes, even while nothing may be
// delivered, so that a sender that resets its connection takes none of it back.
type flow struct {
	p        *Proxy
	rule     *direction
	src, dst *net.TCPConn
	came     func() // is called when data comes, with p.mu

	// Guarded by p.mu.
	queue  []byte
	due    time.Time // of the last that was queued
	held   bool      // queue waits for a release
	late   bool      // some of it did
	mute   bool      // data was lost, or is to be, so none may follow
	hushed bool      // nothing may follow, not even the end
	ended  bool      // src sends no more
	cut    bool
}

func (f *flow) receive() {
	buf := make([]byte, 32<<10)
	for {
		n, err := f.src.Read(buf)
		f.p.mu.Lock()
		if n > 0 {
			f.came()
			f.mute = f.mute || f.hushed || f.rule.drop
			if !f.mute {
				f.held = f.held || f.rule.hold
				f.queue = append(f.queue, buf[:n]...)
				f.due = time.Now().Add(f.rule.delay)
			}
		}
		f.ended = err != nil
		f.p.changed.Broadcast()
		f.p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (f *flow) deliver() {
	for {
		data, due, err := f.next()
		if err != nil {
			return
		}
		f.p.sleep(time.Until(due))
		if len(data) == 0 {
			_ = f.dst.CloseWrite()
			return
		}
		if _, err := f.dst.Write(data); err != nil {
			// The receiver is gone; the other way may still have something to deliver.
			f.p.mu.Lock()
			f.mute, f.queue, f.held = true, nil, false
			f.p.mu.Unlock()
		}
	}
}

var errCut = errors.New("connection cut")

// done is how long a server has for what was kept back, before it hears that the client has gone:
// the news is as late.
const done = 200 * time.Millisecond

// next waits for data that may be delivered, at due. None means that all was.
func (f *flow) next() (data []byte, due time.Time, err error) {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	for !f.cut && (f.hushed || f.held || len(f.queue) == 0 && !f.ended) {
		f.p.changed.Wait()
	}
	if f.cut {
		return nil, due, errCut
	}
	data, due = f.queue, f.due
	f.queue = nil
	if len(data) == 0 && f.late { // else what came late is given up before it is done
		due = time.Now().Add(done)
	}
	return data, due, nil
}
