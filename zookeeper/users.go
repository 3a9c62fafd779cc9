package zookeeper

import (
	"context"
	"time"

	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/outage"
)

// use counts one more user. It returns false if the session has ended, or would have if somebody had used it.
func (s *session) use() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || !clock.Now().Before(s.life.until()) {
		return false
	}
	s.users++
	return true
}

// leave undoes use.
func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.users--
	s.unused = clock.Now()
}

// over says whether the session has ended.
func (s *session) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// lasts says whether the connection still has the session.
func (s *session) lasts() bool { return !s.over() && s.conn.SessionID() == s.id }

// left is how long the session lasts for certain.
func (s *session) left() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.life.until().IsZero() {
		return 0
	}
	return max(s.life.until().Sub(clock.Now()), 0)
}

// end tells everyone that the session is over.
func (s *session) end() {
	s.mu.Lock()
	s.ended = true
	var callbacks []func()
	for l, f := range s.leases {
		if f != nil {
			callbacks = append(callbacks, f)
			s.leases[l] = nil
		}
	}
	s.mu.Unlock()
	s.cancel()
	for _, f := range callbacks {
		f()
	}
}

// enrol has the session know a lease of which something may be left behind. It returns false if the session has ended.
func (s *session) enrol(l *lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.leases[l] = nil
	}
	return !s.ended
}

// notify has f called when the session ends, or now if it has.
func (s *session) notify(l *lease, f func()) {
	s.mu.Lock()
	now := s.ended
	if _, enrolled := s.leases[l]; enrolled && !now {
		s.leases[l] = f
	}
	s.mu.Unlock()
	if now {
		f()
	}
}

func (s *session) forget(l *lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.leases, l)
}

// unfinished lists the leases of which something may be left behind.
func (s *session) unfinished() []*lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*lease, 0, len(s.leases))
	for l := range s.leases {
		all = append(all, l)
	}
	return all
}

// finishAll ends the leases of a session that is gone, and its connection with it.
func (s *session) finishAll() {
	for _, l := range s.unfinished() {
		_ = l.finish(false)
	}
}

// sweep removes what the leases of a session on the application's connection have left behind, once the core has
// given up: the connection may have been away for so long that all holds are lost, and come back with
// the session, and the nodes on it, alive.
func (s *session) sweep() {
	for {
		for _, l := range s.unfinished() {
			ctx, cancel := context.WithTimeout(s.driver.ctx, s.ttl/2)
			_ = l.Release(ctx)
			cancel()
		}
		if len(s.unfinished()) == 0 || outage.Sleep(s.driver.ctx, max(sweepAgain, pace(s.ttl)/retriesPerTTL)) != nil {
			return
		}
	}
}
