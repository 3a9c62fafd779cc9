package zookeeper

import (
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/internal/clock"
)

// signal wakes those who wait for a connection.
type signal struct {
	mu      sync.Mutex
	changed chan struct{} // nil: nobody waits
	polled  bool
}

// next returns a channel that is closed when the connection has changed. A caller that gets it before it looks at the connection
// misses nothing.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

func (s *signal) raise() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// pollEvery is how often the application's connection is looked at while it has no session.
const pollEvery = 25 * time.Millisecond

// poll raises the signal of the application's connection when that has a session: the application may keep the library's events from
// us. One goroutine looks, for all who wait. Those of a connection of our own are woken by its events.
func (d *Driver) poll() {
	s := &d.changes
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.conn == nil || s.polled {
		return
	}
	s.polled = d.spawn(func() {
		for clock.Sleep(d.ctx, pollEvery) == nil && d.conn.State() != zk.StateHasSession {
		}
		s.mu.Lock()
		s.polled = false
		s.mu.Unlock()
		s.raise()
	}) == nil
}
