package memory

import (
	"context"
	"slices"
	"strings"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// List implements driver.Operator, in one page.
func (d *backend) List(prefix string) driver.Pager {
	return func(context.Context) (driver.Page, error) {
		return driver.Page{Names: d.space.held(prefix), Last: true}, nil
	}
}

// ForceRelease implements driver.Operator.
func (d *backend) ForceRelease(_ context.Context, name string, shown driver.State) error {
	s := d.space
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.locks[name]
	if l == nil || !l.held() {
		return driver.ErrNotHeld
	}
	before := len(l.holders)
	l.holders = slices.DeleteFunc(l.holders, func(holder *claim) bool { return describes(shown, holder) })
	if len(l.holders) == before {
		return l.heldBy()
	}
	s.settle(name, l)
	return nil
}

// describes reports whether holder is the holder that is shown, or one of the shares.
func describes(shown driver.State, holder *claim) bool {
	isShown := func(p driver.Participant) bool { return p.ID == holder.participant().ID }
	switch {
	case shown.Token != 0 && shown.Token != holder.token:
		return false
	case shown.Holder.ID != "":
		return isShown(shown.Holder)
	default:
		return len(shown.Shares) == 0 || slices.ContainsFunc(shown.Shares, isShown)
	}
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
	if l.holders[0].Metadata == "" {
		return driver.ErrHeld // which costs nothing
	}
	return &driver.HeldError{Holder: l.holders[0].participant()}
}
