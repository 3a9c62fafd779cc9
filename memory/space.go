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
	last  uint64           // number of a lease, or of one that is waited for
}

// lock is one name, while it has a holder.
type lock struct {
	holders []*lease // one, or several shares
	shared  bool
	token   uint64 // of all of them
	queue   []*waiter
	expiry  *time.Timer // set while there is a queue

	room [1]*lease // where holders begins: most often there is one
}

type waiter struct {
	req     driver.Request
	number  uint64 // of its lease
	shared  bool
	granted chan *lease // holds one
}

// lease implements driver.Lease and driver.Downgrader.
type lease struct {
	space    *space
	number   uint64 // no other lease of the space has it
	name     string
	metadata string
	token    uint64
	until    time.Time // of package clock
	released bool
}

// take grants the lock, or a share of it, or returns nil if others have it, or come first. The caller holds s.mu, here and below.
func (s *space) take(req driver.Request, shared bool) *lease {
	l := s.locks[req.Name]
	if l != nil {
		s.settle(req.Name, l)
		if len(l.holders) > 0 && (len(l.queue) > 0 || !l.admits(shared)) {
			return nil
		}
	}
	return s.grant(req, s.number(), shared)
}

func (s *space) number() uint64 {
	s.last++
	return s.last
}

// admits reports whether there is room for a share, or for who wants the lock alone, beside those that have it.
func (l *lock) admits(shared bool) bool { return len(l.holders) == 0 || l.shared && shared }

func (s *space) grant(req driver.Request, number uint64, shared bool) *lease {
	l := s.locks[req.Name]
	if l == nil {
		l = &lock{}
		l.holders = l.room[:0]
		s.locks[req.Name] = l
	}
	if len(l.holders) == 0 {
		l.token, l.shared = lastToken.Add(1), shared
	}
	granted := &lease{
		space: s, number: number, name: req.Name, metadata: req.Metadata, token: l.token, until: clock.Now().Add(req.TTL),
	}
	l.holders = append(l.holders, granted)
	return granted
}

// settle removes those that have expired, and has those come that may.
func (s *space) settle(name string, l *lock) {
	now := clock.Now()
	l.holders = slices.DeleteFunc(l.holders, func(holder *lease) bool { return !now.Before(holder.until) })
	for len(l.queue) > 0 && l.admits(l.queue[0].shared) {
		first := l.queue[0]
		l.queue = slices.Delete(l.queue, 0, 1)
		first.granted <- s.grant(first.req, first.number, first.shared)
	}
	if len(l.holders) == 0 {
		delete(s.locks, name)
	}
	s.watch(name, l)
}

func (s *space) enqueue(w *waiter) {
	l := s.locks[w.req.Name]
	l.queue = append(l.queue, w)
	s.watch(w.req.Name, l)
}

func (s *space) leave(w *waiter) {
	if l := s.locks[w.req.Name]; l != nil {
		l.queue = slices.DeleteFunc(l.queue, func(other *waiter) bool { return other == w })
		s.settle(w.req.Name, l)
	}
}

// watch has the lock settled when the next holder's lease expires, if somebody waits for that.
func (s *space) watch(name string, l *lock) {
	if l.expiry != nil {
		l.expiry.Stop()
		l.expiry = nil
	}
	if len(l.queue) == 0 {
		return
	}
	next := slices.MinFunc(l.holders, func(a, b *lease) int { return a.until.Compare(b.until) })
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
		left, who := holder.until.Sub(clock.Now()), participant(holder.number, holder.metadata)
		switch {
		case left <= 0:
			continue
		case l.shared:
			state.Shares = append(state.Shares, who)
		default:
			state.Holder = who
		}
		state.Held, state.Left = true, max(state.Left, left)
	}
	for _, w := range l.queue {
		state.Waiters = append(state.Waiters, participant(w.number, w.req.Metadata))
	}
	return state
}

// participant returns who holds, or waits, for people who look.
func participant(number uint64, metadata string) driver.Participant {
	return driver.Participant{ID: strconv.FormatUint(number, 10), Metadata: metadata}
}

func (l *lease) Token() uint64 { return l.token }

func (l *lease) Validity() time.Duration {
	l.space.mu.Lock()
	defer l.space.mu.Unlock()
	return l.until.Sub(clock.Now())
}

// at returns the lock that the lease holds, or nil. The caller holds the space's mutex.
func (l *lease) at() *lock {
	held := l.space.locks[l.name]
	if held == nil || !slices.Contains(held.holders, l) || !clock.Now().Before(l.until) {
		return nil
	}
	return held
}

func (l *lease) Extend(_ context.Context, ttl time.Duration) error {
	s := l.space
	s.mu.Lock()
	defer s.mu.Unlock()
	held := l.at()
	if held == nil {
		return driver.ErrLost
	}
	l.until = clock.Now().Add(ttl)
	s.watch(l.name, held)
	return nil
}

// Downgrade implements driver.Downgrader.
func (l *lease) Downgrade(context.Context) error {
	s := l.space
	s.mu.Lock()
	defer s.mu.Unlock()
	held := l.at()
	if held == nil {
		return driver.ErrLost
	}
	held.shared = true
	s.settle(l.name, held)
	return nil
}

func (l *lease) Release(context.Context) error {
	s := l.space
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.released {
		return nil
	}
	lasted := l.at() != nil
	if held := s.locks[l.name]; held != nil && slices.Contains(held.holders, l) {
		held.holders = slices.DeleteFunc(held.holders, func(other *lease) bool { return other == l })
		s.settle(l.name, held)
	}
	if !lasted {
		return driver.ErrLost
	}
	l.released = true
	return nil
}
