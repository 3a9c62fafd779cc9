package stdio

import (
	"sync"
	"time"
)

// Pool is processes whose Lockers were closed. Where programs start slowly, most of a check would
// be their starts.
type Pool struct {
	mu    sync.Mutex
	idle  []*Program
	ended bool
}

const (
	mostIdle  = 24
	closeWait = 500 * time.Millisecond
)

// Take returns a process without a Locker, or nil.
func (o *Pool) Take() *Program {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.idle) > 0 {
		p := o.idle[len(o.idle)-1]
		o.idle = o.idle[:len(o.idle)-1]
		if p.Failure() == nil {
			return p
		}
		go p.End()
	}
	return nil
}

// Put takes a process back, or ends it: if it has something left to answer, or does not close its
// Lockers.
func (o *Pool) Put(p *Program) {
	closed := p.closeAll()
	o.mu.Lock()
	keep := closed && !o.ended && len(o.idle) < mostIdle
	if keep {
		o.idle = append(o.idle, p)
	}
	o.mu.Unlock()
	if !keep {
		p.End()
	}
}

// End ends all that there are, and those that come back.
func (o *Pool) End() {
	o.mu.Lock()
	idle := o.idle
	o.idle, o.ended = nil, true
	o.mu.Unlock()
	var wg sync.WaitGroup
	for _, p := range idle {
		wg.Go(p.End)
	}
	wg.Wait()
}

// locker is one of a program.
type locker struct {
	id   string
	asks func() uint64 // the request that waits for the loss of its hold, or 0
}

// Opened remembers a Locker, to be closed. asks returns the request that is answered when its hold
// is lost, or 0.
func (p *Program) Opened(id string, asks func() uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = append(p.open, locker{id, asks})
}

// closeAll reports whether the program has nothing left to answer, and closes its Lockers.
func (p *Program) closeAll() bool {
	p.mu.Lock()
	open := p.open
	p.open = nil
	p.mu.Unlock()
	for _, l := range open {
		if request := l.asks(); request != 0 {
			p.Cancel(request)
		}
	}
	if !p.quiet() {
		return false
	}
	for _, l := range open {
		_, reply := p.Send(Request{Op: AskClose, Locker: l.id})
		select {
		case answer := <-reply:
			if answer.Result != OK {
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
func (p *Program) quiet() bool {
	for end := time.Now().Add(closeWait); ; time.Sleep(time.Millisecond) {
		p.mu.Lock()
		left, gone := len(p.waiting), p.why != nil
		p.mu.Unlock()
		if left == 0 || gone || time.Now().After(end) {
			return left == 0 && !gone
		}
	}
}
