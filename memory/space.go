package memory

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// space is a set of locks. One mutex guards all of it: nothing is done under it that takes time.
type space struct {
	mu    sync.Mutex
	locks map[string]*lock // those that are held, or have expired with nobody taking over
}

// lock is one name, while it has a holder.
type lock struct {
	holder *lease
	queue  []*waiter
	expiry *time.Timer // set while there is a queue
}

type waiter struct {
	req     driver.Request
	granted chan *lease // holds one
}

// lease implements driver.Lease. Its fields are guarded by the space's mutex.
type lease struct {
	space    *space
	name     string
	metadata string
	token    uint64
	until    time.Time // of package clock
	released bool
}

// take grants the lock if it is free. The caller holds s.mu.
func (s *space) take(req driver.Request) *lease {
	l := s.locks[req.Name]
	if l != nil && s.handOverIfDue(req.Name, l) {
		return nil
	}
	return s.grant(req)
}

// handOverIfDue hands over a lock whose lease has expired, and returns true if it has a holder then. The caller holds s.mu.
func (s *space) handOverIfDue(name string, l *lock) bool {
	if clock.Now().Before(l.holder.until) {
		return true
	}
	return s.handOver(name, l)
}

func (s *space) grant(req driver.Request) *lease {
	l := s.locks[req.Name]
	if l == nil {
		l = &lock{}
		s.locks[req.Name] = l
	}
	l.holder = &lease{
		space: s, name: req.Name, metadata: req.Metadata, token: lastToken.Add(1), until: clock.Now().Add(req.TTL),
	}
	s.watch(req.Name, l)
	return l.holder
}

// handOver gives a lock whose lease has ended to the first waiter, or forgets the lock if there is none, which is false. The
// caller holds s.mu.
func (s *space) handOver(name string, l *lock) bool {
	if len(l.queue) == 0 {
		delete(s.locks, name)
		return false
	}
	first := l.queue[0]
	l.queue = slices.Delete(l.queue, 0, 1)
	first.granted <- s.grant(first.req)
	return true
}

func (s *space) enqueue(w *waiter) {
	l := s.locks[w.req.Name]
	l.queue = append(l.queue, w)
	s.watch(w.req.Name, l)
}

func (s *space) leave(w *waiter) {
	if l := s.locks[w.req.Name]; l != nil {
		l.queue = slices.DeleteFunc(l.queue, func(other *waiter) bool { return other == w })
		s.watch(w.req.Name, l)
	}
}

// watch sets the timer that notices an expiry, which matters only to waiters.
func (s *space) watch(name string, l *lock) {
	if l.expiry != nil {
		l.expiry.Stop()
		l.expiry = nil
	}
	if len(l.queue) == 0 {
		return
	}
	l.expiry = time.AfterFunc(l.holder.until.Sub(clock.Now()), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.locks[name] == l && s.handOverIfDue(name, l) {
			s.watch(name, l)
		}
	})
}

// look leaves a lease that has expired as it is: the next contender hands the lock over.
func (s *space) look(name string) (state driver.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.locks[name]
	if l == nil {
		return state
	}
	state.Token = l.holder.token
	if left := l.holder.until.Sub(clock.Now()); left > 0 {
		state.Held, state.Left, state.Holder.Metadata = true, left, l.holder.metadata
	}
	for _, w := range l.queue {
		state.Waiters = append(state.Waiters, driver.Participant{Metadata: w.req.Metadata})
	}
	return state
}

// Token implements driver.Lease.
func (l *lease) Token() uint64 { return l.token }

// Validity implements driver.Lease.
func (l *lease) Validity() time.Duration {
	l.space.mu.Lock()
	defer l.space.mu.Unlock()
	return l.until.Sub(clock.Now())
}

// holding reports whether the lease lasts. The caller holds s.mu.
func (l *lease) holding() bool {
	held := l.space.locks[l.name]
	return held != nil && held.holder == l && clock.Now().Before(l.until)
}

// Extend implements driver.Lease.
func (l *lease) Extend(_ context.Context, ttl time.Duration) error {
	s := l.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if !l.holding() {
		return driver.ErrLost
	}
	l.until = clock.Now().Add(ttl)
	s.watch(l.name, s.locks[l.name])
	return nil
}

// Release implements driver.Lease.
func (l *lease) Release(context.Context) error {
	s := l.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.released {
		return nil
	}
	lasted := l.holding()
	if held := s.locks[l.name]; held != nil && held.holder == l {
		s.handOver(l.name, held)
	}
	if !lasted {
		return driver.ErrLost
	}
	l.released = true
	return nil
}
