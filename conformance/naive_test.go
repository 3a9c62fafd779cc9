package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
)

// naive is a lock over a map, which shares no code with the module's core. With no flaw it keeps the
// contract, by polling, without TryLock, Lost or Deadline.
type naive struct {
	server *table
	name   string
	ttl    time.Duration
	flaw   string

	mu    sync.Mutex
	owner string // of the current hold, lost or not; empty: none
	token uint64
	until time.Time
}

// table is the server of naive locks.
type table struct {
	mu     sync.Mutex
	rows   map[string]*entry
	tokens uint64
	owners int
	gate   gate
	late   time.Duration // how long after its TTL an entry lapses
}

type entry struct {
	owner string
	until time.Time
}

// at returns the entry that has not lapsed. The caller holds t.mu.
func (t *table) at(name string) *entry {
	if e := t.rows[name]; e != nil && time.Now().Before(e.until.Add(t.late)) {
		return e
	}
	return nil
}

// prolong extends whatever is there.
func (t *table) prolong(name string, ttl time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.at(name); e != nil {
		e.until = time.Now().Add(ttl)
	}
}

// take returns a token, or 0 if the lock is another's.
func (t *table) take(name, owner string, ttl time.Duration) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.at(name) != nil {
		return 0
	}
	t.rows[name] = &entry{owner, time.Now().Add(ttl)}
	t.tokens++
	return t.tokens
}

func (l *naive) Lock(ctx context.Context) error {
	if l.name == "" || !utf8.ValidString(l.name) {
		return errors.New("a name is UTF-8, and not empty")
	}
	l.server.mu.Lock()
	l.server.owners++
	owner := fmt.Sprint(l.server.owners)
	l.server.mu.Unlock()
	if l.flaw == "owner set before the take" {
		l.mu.Lock()
		l.owner = owner
		l.mu.Unlock()
	}
	var held error
	for {
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), context.Cause(ctx), held)
		}
		l.mu.Lock()
		gone := l.owner != "" && l.flaw == "" && !time.Now().Before(l.until)
		l.mu.Unlock()
		if gone {
			return locker.ErrLost
		}
		before := time.Now()
		if token := l.server.take(l.name, owner, l.ttl); token != 0 {
			return l.begin(owner, token, before)
		}
		held = locker.ErrHeld
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// begin makes a grant the current hold, unless a lost one awaits its Unlock.
func (l *naive) begin(owner string, token uint64, before time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner != "" && l.flaw == "" {
		_ = l.remove(owner)
		return locker.ErrLost
	}
	l.owner, l.token, l.until = owner, token, before.Add(l.ttl)
	return nil
}

// remove deletes the owner's entry.
func (l *naive) remove(owner string) error {
	if l.flaw == "looks, then deletes" {
		return l.lookAndDelete(owner)
	}
	t := l.server
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.at(l.name)
	if (e == nil || e.owner != owner) && l.flaw != "deletes whatever is there" {
		return locker.ErrLost
	}
	delete(t.rows, l.name)
	return nil
}

// lookAndDelete is two steps, and an unlucky pause between them: until another has taken over, if one
// does soon.
func (l *naive) lookAndDelete(owner string) error {
	t := l.server
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.at(l.name)
	if e == nil || e.owner != owner {
		return locker.ErrLost
	}
	for end := time.Now().Add(2 * l.ttl); time.Now().Before(end); {
		if now := t.at(l.name); now != nil && now != e {
			break
		}
		t.mu.Unlock()
		time.Sleep(time.Millisecond)
		t.mu.Lock()
	}
	delete(t.rows, l.name)
	return nil
}

func (l *naive) Unlock(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	owner, until := l.owner, l.until
	if owner == "" {
		if l.flaw == "deletes whatever is there" {
			_ = l.remove(owner)
		}
		return locker.ErrNotHeld
	}
	l.owner, l.token = "", 0
	if err := l.remove(owner); err != nil || !time.Now().Before(until) && l.flaw == "" {
		return locker.ErrLost
	}
	return nil
}

func (l *naive) Extend(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.owner == "" {
		return locker.ErrNotHeld
	}
	t, now := l.server, time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.at(l.name)
	if l.flaw == "extends whatever is there" && e != nil {
		e.until = now.Add(l.ttl)
		return nil
	}
	if e == nil || e.owner != l.owner || !now.Before(l.until) {
		return locker.ErrLost
	}
	e.until, l.until = now.Add(l.ttl), now.Add(l.ttl)
	return nil
}

func (l *naive) FencingToken() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !time.Now().Before(l.until) {
		return 0
	}
	return l.token
}

// naiveLocks is the harness of naive locks with a flaw, or none, that lapse late by at most late.
func naiveLocks(flaw string, late time.Duration) conformance.Harness {
	t := &table{rows: map[string]*entry{}, late: late}
	return conformance.Harness{
		TTL: memoryTTL,
		New: func(tb conformance.TB, name string, ttl time.Duration) locker.Locker {
			return &naive{server: t, name: name, ttl: ttl, flaw: flaw}
		},
	}
}
