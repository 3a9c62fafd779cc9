package memory

import (
	"context"
	"slices"
	"strconv"
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
	holders []*claim // one, or several shares
	shared  bool
	token   uint64    // of all of them
	since   time.Time // by package clock: when the first of them came
	queue   []*claim
	expiry  *time.Timer // set while there is a queue

	room [1]*claim // where holders begins: most often there is one
}

// claim implements driver.Claim and driver.Downgrader.
type claim struct {
	driver.Request

	space    *space
	number   uint64 // no other claim of the process has it
	token    uint64
	until    time.Time // of package clock
	released bool
	waited   func() // see NotifyWait; or nil
}

// Ask takes the lock, or has it from the queue already. It makes no request that could be lost.
func (c *claim) Ask(context.Context) (next time.Duration, err error) {
	s := c.space
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.locks[c.Name]
	if l != nil {
		s.settle(c.Name, l)
	}
	switch {
	case s.locks[c.Name] == nil: // it is free
		l = &lock{}
		l.holders = l.room[:0]
		s.locks[c.Name] = l
		l.grant(c)
	case slices.Contains(l.holders, c): // while it waited
		c.until = clock.Now().Add(c.TTL)
	case len(l.queue) == 0 && l.admits(c.Shared):
		l.grant(c)
	default:
		if c.Wake == nil {
			return 0, l.heldBy()
		}
		if !slices.Contains(l.queue, c) {
			l.queue = append(l.queue, c)
			s.watch(c.Name, l)
			for _, holder := range l.holders {
				if holder.waited != nil {
					holder.waited()
				}
			}
		}
		return c.TTL, l.heldBy()
	}
	return 0, nil
}

// admits reports whether there is room for a share, or for who wants the lock alone, beside those
// that have it.
func (l *lock) admits(shared bool) bool { return len(l.holders) == 0 || l.shared && shared }

// grant makes c a holder. The caller holds the space's mutex, here and below.
func (l *lock) grant(c *claim) {
	now := clock.Now()
	if len(l.holders) == 0 {
		l.token, l.shared, l.since = lastToken.Add(1), c.Shared, now
	}
	c.token, c.until = l.token, now.Add(c.TTL)
	l.holders = append(l.holders, c)
}

// settle removes those that have expired, and has those come that may.
func (s *space) settle(name string, l *lock) {
	now := clock.Now()
	l.holders = slices.DeleteFunc(l.holders, func(holder *claim) bool { return !now.Before(holder.until) })
	for len(l.queue) > 0 && l.admits(l.queue[0].Shared) {
		first := l.queue[0]
		l.queue = slices.Delete(l.queue, 0, 1)
		l.grant(first)
		first.Wake()
	}
	if len(l.holders) == 0 {
		delete(s.locks, name)
	}
	s.watch(name, l)
}

// watch settles the lock when the next holder's lease expires, if somebody waits for that.
func (s *space) watch(name string, l *lock) {
	if l.expiry != nil {
		l.expiry.Stop()
		l.expiry = nil
	}
	if len(l.queue) == 0 {
		return
	}
	next := slices.MinFunc(l.holders, func(a, b *claim) int { return a.until.Compare(b.until) })
	l.expiry = time.AfterFunc(next.until.Sub(clock.Now()), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.locks[name] == l {
			s.settle(name, l)
		}
	})
}

func (s *space) look(name string) (state driver.State) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.locks[name]
	if l == nil {
		return state
	}
	state.Token = l.token
	for _, holder := range l.holders {
		left, who := holder.until.Sub(clock.Now()), holder.participant()
		switch {
		case left <= 0:
			continue
		case l.shared:
			state.Shares = append(state.Shares, who)
		default:
			state.Holder = who
		}
		state.Held, state.Left, state.Since = true, max(state.Left, left), clock.Local(l.since)
	}
	for _, w := range l.queue {
		state.Waiters = append(state.Waiters, w.participant())
	}
	return state
}

// participant returns who holds, or waits, for people who look.
func (c *claim) participant() driver.Participant {
	return driver.Participant{ID: strconv.FormatUint(c.number, 10), Metadata: c.Metadata}
}

func (c *claim) Token() uint64 { return c.token }

func (c *claim) Validity() time.Duration {
	c.space.mu.Lock()
	defer c.space.mu.Unlock()
	return c.until.Sub(clock.Now())
}

// at returns the lock that the claim holds, or nil. The caller holds the space's mutex.
func (c *claim) at() *lock {
	held := c.space.locks[c.Name]
	if held == nil || !slices.Contains(held.holders, c) || !clock.Now().Before(c.until) {
		return nil
	}
	return held
}

func (c *claim) Extend(_ context.Context, ttl time.Duration) error {
	s := c.space
	s.mu.Lock()
	defer s.mu.Unlock()
	held := c.at()
	if held == nil {
		return driver.ErrLost
	}
	c.until = clock.Now().Add(ttl)
	s.watch(c.Name, held)
	return nil
}

// NotifyWait implements driver.WaitNotifier.
func (c *claim) NotifyWait(_ context.Context, wake func()) (waits bool, next time.Duration, err error) {
	c.space.mu.Lock()
	defer c.space.mu.Unlock()
	c.waited = wake
	held := c.at()
	return held != nil && len(held.queue) > 0, c.TTL, nil
}

// Downgrade implements driver.Downgrader.
func (c *claim) Downgrade(context.Context) error {
	s := c.space
	s.mu.Lock()
	defer s.mu.Unlock()
	held := c.at()
	if held == nil {
		return driver.ErrLost
	}
	held.shared = true
	s.settle(c.Name, held)
	return nil
}

// Release ends the hold, or the wait.
func (c *claim) Release(context.Context) error {
	s := c.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.released {
		return nil
	}
	lasted := c.at() != nil
	if l := s.locks[c.Name]; l != nil {
		none := func(other *claim) bool { return other == c }
		l.holders, l.queue = slices.DeleteFunc(l.holders, none), slices.DeleteFunc(l.queue, none)
		s.settle(c.Name, l)
	}
	if !lasted && c.token > 0 {
		return driver.ErrLost
	}
	c.released = true
	return nil
}
