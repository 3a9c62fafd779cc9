package conformance

import (
	"sync"
	"time"
)

// pool is processes whose Lockers were closed. Where programs start slowly, most of a check would be their starts.
type pool struct {
	mu    sync.Mutex
	idle  []*program
	ended bool
}

const (
	mostIdle  = 24
	closeWait = 500 * time.Millisecond
)

// take returns a process without a Locker, or nil.
func (o *pool) take() *program {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.idle) > 0 {
		p := o.idle[len(o.idle)-1]
		o.idle = o.idle[:len(o.idle)-1]
		if p.failure() == nil {
			return p
		}
		go p.end()
	}
	return nil
}

// put takes a process back, or ends it: if it has something left to answer, or does not close its Lockers.
func (o *pool) put(p *program) {
	closed := p.closeAll()
	o.mu.Lock()
	keep := closed && !o.ended && len(o.idle) < mostIdle
	if keep {
		o.idle = append(o.idle, p)
	}
	o.mu.Unlock()
	if !keep {
		p.end()
	}
}

// end ends all that there are, and those that come back.
func (o *pool) end() {
	o.mu.Lock()
	idle := o.idle
	o.idle, o.ended = nil, true
	o.mu.Unlock()
	var wg sync.WaitGroup
	for _, p := range idle {
		wg.Go(p.end)
	}
	wg.Wait()
}

// opened remembers a Locker, to be closed.
func (p *program) opened(r *remote) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remotes = append(p.remotes, r)
}

// closeAll reports whether the program has nothing left to answer, and closes its Lockers.
func (p *program) closeAll() bool {
	p.mu.Lock()
	remotes := p.remotes
	p.remotes = nil
	p.mu.Unlock()
	for _, r := range remotes {
		if r.asks != 0 {
			p.cancel(r.asks)
		}
	}
	if !p.quiet() {
		return false
	}
	for _, r := range remotes {
		_, reply := p.send(requestLine{Op: askClose, Locker: r.id})
		select {
		case answer := <-reply:
			if answer.Result != resultOK {
				return false
			}
		case <-p.gone:
			return false
		case <-time.After(closeWait):
			return false
		}
	}
	return true
}

// quiet reports whether all requests are answered, or soon are.
func (p *program) quiet() bool {
	for end := time.Now().Add(closeWait); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		left, gone := len(p.waiting), p.why != nil
		p.mu.Unlock()
		if left == 0 || gone || time.Now().After(end) {
			return left == 0 && !gone
		}
	}
}
