package sessions

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/go-locker/locker/driver"
)

// Pool has the sessions of a Driver: one a key, which is its TTL.
type Pool[S Backend[L], L comparable] struct {
	ctx     context.Context
	cancel  context.CancelFunc // called under mu: then Get starts no session
	running sync.WaitGroup

	mu       sync.Mutex
	sessions map[time.Duration]S // that take users
}

// NewPool returns a Pool without sessions.
func NewPool[S Backend[L], L comparable]() *Pool[S, L] {
	p := &Pool[S, L]{sessions: map[time.Duration]S{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Context returns a context that ends with the Pool.
func (p *Pool[S, L]) Context() context.Context { return p.ctx }

// Get returns the session of a key, which may not have started yet. It makes one if there is none that
// takes users. After Close it returns driver.ErrClosed.
func (p *Pool[S, L]) Get(key time.Duration, create func() S) (s S, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return s, driver.ErrClosed
	}
	s, ok := p.sessions[key]
	if !ok || s.base().gone() {
		s = create()
		p.sessions[key] = s
		p.running.Go(func() { s.base().run(func() { p.forget(s) }) })
	}
	return s, nil
}

// Any returns a session that has started, whatever its key, if there is one.
func (p *Pool[S, L]) Any() (s S, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.sessions {
		if s.base().Started() {
			return s, true
		}
	}
	return s, false
}

// Add has Get find a session by a second key, unless another has that.
func (p *Pool[S, L]) Add(key time.Duration, s S) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, ok := p.sessions[key]; !ok {
		p.sessions[key] = s
	}
}

// forget has Get make another session.
func (p *Pool[S, L]) forget(s S) {
	p.mu.Lock()
	defer p.mu.Unlock()
	maps.DeleteFunc(p.sessions, func(_ time.Duration, other S) bool { return other.base() == s.base() })
}

// Close ends the sessions, and returns when all have stopped.
func (p *Pool[S, L]) Close() {
	p.mu.Lock()
	p.cancel()
	p.mu.Unlock()
	p.running.Wait()
}
