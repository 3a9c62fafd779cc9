package memory

import (
	"context"
	"slices"
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

// ForceRelease implements driver.ForceReleaser. Nobody has an ID, so that of a lock that is shared all shares end.
func (d *Driver) ForceRelease(_ context.Context, name string, shown driver.State) error {
	s := d.space
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.locks[name]
	switch {
	case l == nil || !l.held():
		return driver.ErrNotHeld
	case shown.Token != l.token:
		return l.heldBy()
	}
	l.holders = nil
	s.settle(name, l)
	return nil
}

// held returns the names that begin with prefix and are held.
func (s *space) held(prefix string) (names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, l := range s.locks {
		if strings.HasPrefix(name, prefix) && l.held() {
			names = append(names, name)
		}
	}
	return names
}

// held reports whether somebody has the lock whose lease has not expired.
func (l *lock) held() bool {
	now := clock.Now()
	return slices.ContainsFunc(l.holders, func(holder *claim) bool { return now.Before(holder.until) })
}

// heldBy returns the error that tells who holds a lock: of shares, the first.
func (l *lock) heldBy() error {
	metadata := l.holders[0].Metadata
	if metadata == "" {
		return driver.ErrHeld // which costs nothing
	}
	return &driver.HeldError{Holder: driver.Participant{Metadata: metadata}}
}
