package zookeeper

import (
	"context"
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

// next returns a channel that is closed when the connection has changed. Who gets it before looking at the connection misses nothing.
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

// poll reports whether nobody polled before: the caller does, then.
func (s *signal) poll(polled bool) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first = !s.polled
	s.polled = polled
	return first
}

// pollEvery is how often the application's connection is looked at while it has no session.
const pollEvery = 25 * time.Millisecond

// await waits until changed is closed, which the session's signal has returned, or over, which may be nil, or ctx ends. The library
// tells how a connection of our own fares. Of the application's it tells the application, who may keep it from us: one goroutine
// looks, for all who wait.
func (s *session) await(ctx context.Context, changed, over <-chan struct{}) error {
	if d := s.driver; d.conn != nil && d.changes.poll(true) {
		_ = d.spawn(func() {
			for clock.Sleep(d.ctx, pollEvery) == nil && d.conn.State() != zk.StateHasSession {
			}
			d.changes.poll(false)
			d.changes.raise()
		})
	}
	select {
	case <-changed:
		return nil
	case <-over:
		return errSessionEnded
	case <-ctx.Done():
		return ctx.Err()
	}
}
