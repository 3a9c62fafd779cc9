package memory

import (
	"context"
	"strings"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// List implements driver.Lister, in one page.
func (d *Driver) List(prefix string) driver.Pager {
	return func(context.Context) (driver.Page, error) {
		return driver.Page{Names: d.space.held(prefix), Last: true}, nil
	}
}

// ForceRelease implements driver.ForceReleaser.
func (d *Driver) ForceRelease(_ context.Context, name string, shown driver.State) error {
	s := d.space
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.locks[name]
	switch {
	case l == nil || !l.holder.holding():
		return driver.ErrNotHeld
	case shown.Token != l.holder.token: // nobody has an ID
		return s.heldBy(name)
	}
	s.handOver(name, l)
	return nil
}

// held returns the names that begin with prefix and are held.
func (s *space) held(prefix string) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, l := range s.locks {
		if strings.HasPrefix(name, prefix) && clock.Now().Before(l.holder.until) {
			names = append(names, name)
		}
	}
	return names
}

// heldBy returns the error that tells who holds a lock. The caller holds s.mu.
func (s *space) heldBy(name string) error {
	metadata := s.locks[name].holder.metadata
	if metadata == "" {
		return driver.ErrHeld // which costs nothing
	}
	return &driver.HeldError{Holder: driver.Participant{Metadata: metadata}}
}
