package conformance

import (
	"sync"
	"time"

	"github.com/go-locker/locker/conformance/internal/engine"
)

// silence is a backend that is not to answer until it is over.
type silence struct {
	field  string
	broken chan struct{} // closed if it answered

	mu      sync.Mutex
	answers int
	began   bool // no answer came for a while
	late    int  // answers since then
	over    bool // the fault is undone
}

// answer counts one. The first after the silence began may have been on its way.
func (s *silence) answer() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers++
	if s.began && !s.over {
		if s.late++; s.late == 2 {
			close(s.broken)
		}
	}
}

// begins reports whether no answer has come since there were so many, and how many there are.
func (s *silence) begins(answers int) (bool, int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = answers == s.answers
	return s.began, s.answers
}

// begin is for an error of the backend's.
func (s *silence) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = true
}

// end comes before the fault is undone.
func (s *silence) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = true
}

// idle returns an error if the backend has answered, or does so within d.
func (s *silence) idle(d time.Duration) error {
	s.mu.Lock()
	if s.over {
		d = 0
	}
	s.mu.Unlock()
	select {
	case <-s.broken:
	case <-time.After(d):
	}
	select { // both may have been ready
	case <-s.broken:
		return engine.Idle(s.field, "it had returned, and was not undone yet, and a Locker locks and unlocks")
	default:
		return nil
	}
}
