package conformance_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
)

// naiveRW is a read-write lock of an rwServer.
type naiveRW struct {
	name   string
	ttl    time.Duration
	server *rwServer

	mu    sync.Mutex
	hold  *rwHold // lost or not; nil: none
	owner string  // the last
}

// rwHold is a hold as its Locker knows it.
type rwHold struct {
	owner  string
	token  uint64
	until  time.Time
	shared bool
}

var errUpgrade = errors.New("a share cannot become the lock")

func (l *naiveRW) Lock(ctx context.Context) error     { return l.get(ctx, false, true) }
func (l *naiveRW) TryLock(ctx context.Context) error  { return l.get(ctx, false, false) }
func (l *naiveRW) RLock(ctx context.Context) error    { return l.get(ctx, true, true) }
func (l *naiveRW) TryRLock(ctx context.Context) error { return l.get(ctx, true, false) }

func (l *naiveRW) get(ctx context.Context, shared, waits bool) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if h := l.current(); h != nil && h.shared && !shared && l.server.flaw != "an upgrade waits for itself" {
		return errUpgrade
	}
	g := &rwGrant{owner: newOwner(), shared: shared, ttl: l.ttl, comes: make(chan struct{})}
	if !l.server.ask(l.name, g, waits) && !waits {
		return locker.ErrHeld
	}
	select {
	case <-g.comes:
	case <-ctx.Done():
		l.server.forget(l.name, g)
		return errors.Join(ctx.Err(), context.Cause(ctx), locker.ErrHeld)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hold = &rwHold{g.owner, g.token, time.Now().Add(l.ttl - l.ttl/100 - 2*time.Millisecond), shared}
	l.owner = g.owner
	return nil
}

// current is the hold unless it is lost.
func (l *naiveRW) current() *rwHold {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold == nil || !time.Now().Before(l.hold.until) {
		return nil
	}
	return l.hold
}

// missing is the error of a call that needs a hold.
func (l *naiveRW) missing() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hold == nil {
		return locker.ErrNotHeld
	}
	l.hold.until = time.Time{}
	return locker.ErrLost
}

func (l *naiveRW) Unlock(context.Context) error {
	h := l.current()
	if h == nil {
		err := l.missing()
		l.server.release(l.name, l.owner)
		l.end()
		return err
	}
	l.end()
	if !l.server.release(l.name, h.owner) {
		return locker.ErrLost
	}
	return nil
}

func (l *naiveRW) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.hold = nil
}

func (l *naiveRW) Extend(context.Context) error {
	h, before := l.current(), time.Now()
	if h == nil && strings.HasSuffix(l.server.flaw, "a share that ended") {
		h = l.hold
	}
	if h == nil || !l.server.extend(l.name, h.owner, l.ttl) {
		return l.missing()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h.until = before.Add(l.ttl - l.ttl/100 - 2*time.Millisecond)
	return nil
}

// Downgrade makes the hold a share.
func (l *naiveRW) Downgrade(context.Context) error {
	h := l.current()
	if h == nil {
		if l.server.flaw == "a downgrade checks no owner" {
			l.server.downgrade(l.name, l.owner)
		}
		return l.missing()
	}
	token, held := l.server.downgrade(l.name, h.owner)
	if !held {
		return l.missing()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	h.shared, h.token = true, token
	return nil
}

func (l *naiveRW) FencingToken() uint64 {
	if h := l.current(); h != nil {
		return h.token
	}
	return 0
}

// naiveRWLocks is a harness of read-write locks with a flaw, or with none.
func naiveRWLocks(flaw string) conformance.Harness {
	s := newRWServer(flaw)
	plain := s
	if flaw == "a plain lock is another lock" {
		plain = newRWServer("")
	}
	return conformance.Harness{
		TTL:      memoryTTL,
		Promises: locker.Guarantees{locker.Ordered: {Level: locker.LevelYes}},
		New: func(_ conformance.TB, name string, ttl time.Duration) locker.Locker {
			return &naiveRW{name: name, ttl: ttl, server: plain}
		},
		RW: func(_ conformance.TB, name string, ttl time.Duration) conformance.RWLocker {
			return &naiveRW{name: name, ttl: ttl, server: s}
		},
	}
}

// readWrite are the scenarios of read-write locks.
func readWrite() (some []conformance.Scenario) {
	for _, s := range conformance.Scenarios() {
		if slices.Contains(s.Needs, "RW") {
			some = append(some, s)
		}
	}
	return some
}

// TestReadWrite_naive: read-write locks that share no code with the module's keep all promises of
// one, whoever goes first.
func TestReadWrite_naive(t *testing.T) {
	var tasks []task
	for who, harness := range map[string]func() conformance.Harness{
		"a queue":       func() conformance.Harness { return naiveRWLocks("") },
		"writers first": func() conformance.Harness { return unordered(naiveRWLocks("writers pass readers")) },
		"readers first": func() conformance.Harness {
			return unordered(naiveRWLocks("readers are admitted while a writer is first"))
		},
		"polling": func() conformance.Harness { return naiveSharesWith("") },
	} {
		for _, s := range readWrite() {
			tasks = append(tasks, task{who + ": " + s.Name, s, harness})
		}
	}
	for _, d := range again(t, allTried(30, tasks), func(seen error) bool { return seen != nil && !conformance.IsSkip(seen) }) {
		if d.seen != nil && !conformance.IsSkip(d.seen) {
			t.Errorf("%q: %v", d.name, d.seen)
		}
	}
}

// unordered promises no order.
func unordered(h conformance.Harness) conformance.Harness {
	h.Promises = locker.Guarantees{}
	return h
}
