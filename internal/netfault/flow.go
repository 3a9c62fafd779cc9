package netfault

import (
	"errors"
	"net"
	"sync"
	"time"
)

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
