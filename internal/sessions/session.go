// Package sessions keeps the sessions of etcd and ZooKeeper alive. A session is a lease at the server
// that its client renews; when it ends, the server removes what was put on it. All contenders of a
// Driver that have the same TTL share one. It also reads the queues in which they stand.
package sessions

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// KeepUnused is how long an unused session is kept, or its TTL if that is longer.
const KeepUnused = time.Minute

// WatchAfter is how old a lease is when it is watched at the server, or up to twice as old. So a short
// hold costs no further request.
const WatchAfter = time.Second

// PollInterval returns after what time a waiter polls, since the event that should wake it may be
// lost. It is random, so that waiters do not poll together.
func PollInterval(ttl time.Duration) time.Duration {
	d := min(max(ttl/3, time.Second), 5*time.Second)
	return d + rand.N(d/4)
}

// Backend is what differs between servers. An adapter's session embeds a *Session, and implements
// the rest.
type Backend[L comparable] interface {
	// Start begins the session at the server. Until it has returned, nobody uses the session.
	Start() error
	// Due returns when to call Renew next, and until when the session certainly lasts; zero if that is
	// not known.
	Due() (renew, until time.Time)
	// Renew asks the server for more time. If that fails, Due returns when to try again. If the server
	// replies that the session is gone, it calls End.
	Renew()
	// Watch begins to watch the leases at the server, and does not wait for it. When a lease ends
	// though the session lasts, the adapter calls ReportLost.
	Watch(leases []L)
	// Stop removes what is left at the server. It is called once, after the session has ended or Start
	// has failed.
	Stop()

	base() *Session[L]
}

// Session is the part of a session that does not depend on the server. It ends when it is in use and
// was not renewed for a TTL, when it was unused for a while, with its Pool, and when the adapter calls
// End. One that has ended is never revived. L are the leases that use it.
type Session[L comparable] struct {
	TTL time.Duration // Start may change it

	backend Backend[L]
	ready   chan struct{} // closed when Start has returned
	err     error         // of Start
	ctx     context.Context
	cancel  context.CancelFunc // called under mu: nobody joins a session that has ended
	nudge   chan struct{}      // holds one: ask Due again

	mu      sync.Mutex // guards what follows
	users   map[L]user
	unused  time.Time // since when there are no users
	retired bool
	timing  bool // a timer runs until a scan is due
	scanDue bool
}

// user is what a session knows of one lease.
type user struct {
	lost  func() // the callback for its loss, or nil
	scans int    // that have met it
}

// New returns the Session of b, which ends with ctx.
func New[L comparable](ctx context.Context, ttl time.Duration, b Backend[L]) *Session[L] {
	s := &Session[L]{
		TTL: ttl, backend: b, ready: make(chan struct{}), nudge: make(chan struct{}, 1), users: map[L]user{}, unused: clock.Now(),
	}
	s.ctx, s.cancel = context.WithCancel(ctx)
	return s
}

func (s *Session[L]) base() *Session[L] { return s }

// Context returns a context that ends with the session.
func (s *Session[L]) Context() context.Context { return s.ctx }

// Wait waits until the session has started, and returns the error of that.
func (s *Session[L]) Wait(ctx context.Context) error {
	select {
	case <-s.ready:
		return s.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Started reports whether the session has started, and not ended.
func (s *Session[L]) Started() bool {
	select {
	case <-s.ready:
		return !s.Ended()
	default:
		return false
	}
}

// Join makes l a user. It returns false if the session has ended, or may have by now.
func (s *Session[L]) Join(l L) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, until := s.backend.Due(); s.Ended() || s.retired || !clock.Now().Before(until) {
		return false
	}
	s.users[l] = user{}
	return true
}

// Leave undoes Join.
func (s *Session[L]) Leave(l L) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.users, l)
	s.unused = clock.Now()
	if s.retired && len(s.users) == 0 {
		s.Wake()
	}
}

// Users returns those that have joined and not left, also after the session has ended.
func (s *Session[L]) Users() []L {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Keys(s.users))
}

// Unused returns for how long nobody has used the session.
func (s *Session[L]) Unused() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.users) > 0 {
		return 0
	}
	return clock.Since(s.unused)
}

// Notify sets the callback of l, which is called once: by End or ReportLost if l is a user then, or
// now if the session has ended.
func (s *Session[L]) Notify(l L, f func()) {
	s.mu.Lock()
	now := s.Ended()
	if _, joined := s.users[l]; joined && !now {
		s.users[l] = user{lost: f}
		s.scheduleScan()
	}
	s.mu.Unlock()
	if now {
		f()
	}
}

// Retire refuses new users, and ends the session after its last user has left.
func (s *Session[L]) Retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retired = true
}

// End ends the session, and calls its users' callbacks.
func (s *Session[L]) End() {
	s.mu.Lock()
	s.cancel()
	lost := maps.Clone(s.users)
	for l := range s.users {
		s.users[l] = user{}
	}
	s.mu.Unlock()
	for _, u := range lost {
		if u.lost != nil {
			u.lost()
		}
	}
}

// ReportLost calls the callback of l, whose lease has ended.
func (s *Session[L]) ReportLost(l L) {
	s.mu.Lock()
	u, joined := s.users[l]
	if joined {
		s.users[l] = user{}
	}
	s.mu.Unlock()
	if u.lost != nil {
		u.lost()
	}
}

// scheduleScan has scan run after WatchAfter, unless the TTL is so short that renewals are as frequent,
// and find a loss as soon. The caller holds s.mu.
func (s *Session[L]) scheduleScan() {
	if s.timing || s.TTL <= 3*WatchAfter {
		return
	}
	s.timing = true
	time.AfterFunc(WatchAfter, func() {
		s.mu.Lock()
		s.timing, s.scanDue = false, true
		s.mu.Unlock()
		s.Wake()
	})
}

// scan begins to watch the leases that it meets for the second time. One timer serves all leases.
func (s *Session[L]) scan() {
	var old []L
	s.mu.Lock()
	if s.scanDue {
		s.scanDue = false
		for l, u := range s.users {
			if u.lost == nil || u.scans == 2 {
				continue
			}
			if u.scans++; u.scans == 2 {
				old = append(old, l)
			} else {
				s.scheduleScan()
			}
			s.users[l] = u
		}
	}
	s.mu.Unlock()
	if len(old) > 0 {
		s.backend.Watch(old)
	}
}

// Ended reports whether the session has ended.
func (s *Session[L]) Ended() bool { return s.ctx.Err() != nil }

// gone reports whether the session takes no more users.
func (s *Session[L]) gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retired || s.Ended()
}

// Left returns for how long the session certainly lasts.
func (s *Session[L]) Left() time.Duration {
	if s.Ended() {
		return 0
	}
	_, until := s.backend.Due()
	return max(until.Sub(clock.Now()), 0)
}

// Wake has Due asked again.
func (s *Session[L]) Wake() {
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

// run starts the session, and renews it until it ends.
func (s *Session[L]) run() {
	s.err = s.backend.Start()
	if s.err == nil {
		close(s.ready)
		s.keep()
	}
	s.End()
	if s.err != nil {
		close(s.ready)
	}
	s.backend.Stop()
}

func (s *Session[L]) keep() {
	for {
		wait, over := s.next()
		s.scan()
		switch {
		case over:
			return
		case wait > 0:
			s.sleep(wait)
		default:
			s.backend.Renew()
		}
	}
}

// next returns how long it is until the next renewal, and whether there will be none.
func (s *Session[L]) next() (wait time.Duration, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock.Now()
	renew, until := s.backend.Due()
	wait = min(renew.Sub(now), KeepUnused)
	if len(s.users) > 0 {
		wait = min(wait, until.Sub(now))
		over = !now.Before(until)
	} else {
		over = s.retired || now.Sub(s.unused) > max(s.TTL, KeepUnused)
	}
	if over {
		s.cancel() // in this step, so that nobody joins it
	}
	return wait, s.Ended()
}

func (s *Session[L]) sleep(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.nudge:
	case <-s.ctx.Done():
	}
}

// Pool has the sessions of a Driver: one a key, which is its TTL.
type Pool[S Backend[L], L comparable] struct {
	ctx     context.Context
	cancel  context.CancelFunc // called under mu: then Get starts no session
	running sync.WaitGroup

	mu       sync.Mutex
	sessions map[time.Duration]S // some may have ended
}

// NewPool returns a Pool without sessions.
func NewPool[S Backend[L], L comparable]() *Pool[S, L] {
	p := &Pool[S, L]{sessions: map[time.Duration]S{}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Context returns a context that ends with the Pool.
func (p *Pool[S, L]) Context() context.Context { return p.ctx }

// Get returns the session of a key, which may not have started yet. It makes one if there is none
// that takes users. After Close it returns driver.ErrClosed.
func (p *Pool[S, L]) Get(key time.Duration, create func() S) (s S, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return s, driver.ErrClosed
	}
	s, ok := p.sessions[key]
	if !ok || s.base().gone() {
		maps.DeleteFunc(p.sessions, func(_ time.Duration, other S) bool { return other.base().gone() })
		s = create()
		p.sessions[key] = s
		p.running.Go(s.base().run)
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
	if other, ok := p.sessions[key]; !ok || other.base().gone() {
		p.sessions[key] = s
	}
}

// Close ends the sessions, and returns when all have stopped.
func (p *Pool[S, L]) Close() {
	p.mu.Lock()
	p.cancel()
	p.mu.Unlock()
	p.running.Wait()
}
