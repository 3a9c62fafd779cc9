package conformance_test

import (
	"slices"
	"sync"
	"time"
)

// rwServer is a server of read-write locks, in memory, which shares no code with the module's. With no flaw it keeps the contract.
type rwServer struct {
	flaw string

	mu    sync.Mutex
	names map[string]*rwLock
	asked int
}

// rwLock is one name.
type rwLock struct {
	name   string
	holds  []*rwGrant
	queue  []*rwGrant
	token  uint64 // the last
	shared bool   // it is of shares
	letIn  time.Time
}

// rwGrant is what an owner has, or waits for.
type rwGrant struct {
	owner  string
	shared bool
	ttl    time.Duration
	until  time.Time
	token  uint64
	comes  chan struct{} // closed when it is granted
}

func newRWServer(flaw string) *rwServer { return &rwServer{flaw: flaw, names: map[string]*rwLock{}} }

// on runs f with the lock called name, of which nothing is there that has expired.
func (s *rwServer) on(name string, f func(*rwLock)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.names[name]
	if l == nil {
		l = &rwLock{name: name}
		s.names[name] = l
	}
	s.expire(l)
	f(l)
}

func (s *rwServer) expire(l *rwLock) {
	n := len(l.holds)
	l.holds = slices.DeleteFunc(l.holds, func(g *rwGrant) bool {
		return !time.Now().Before(g.until) && (!g.shared || s.flaw != "a share never expires")
	})
	if len(l.holds) < n {
		s.serve(l, s.flaw == "of a run of readers an expiry lets in the first")
	}
}

// rarely is true one time in thirty.
func (s *rwServer) rarely() bool {
	s.asked++
	return s.asked%30 == 0
}

// admits reports whether g can be granted beside the holds.
func (s *rwServer) admits(l *rwLock, g *rwGrant) bool {
	alone := slices.ContainsFunc(l.holds, func(h *rwGrant) bool { return !h.shared })
	switch {
	case len(l.holds) == 0:
		return true
	case g.shared && s.flaw == "at most five readers":
		return !alone && len(l.holds) < 5
	case g.shared:
		return s.flaw != "readers exclude each other" && (!alone || s.flaw == "readers come in beside a writer")
	case s.flaw == "a writer comes in beside readers":
		return !alone
	case s.flaw == "one writer in thirty comes in beside readers":
		return !alone && s.rarely()
	}
	return false
}

// serve grants what the head of the queue waits for, or the first of that alone.
func (s *rwServer) serve(l *rwLock, first bool) {
	for len(l.queue) > 0 && s.admits(l, l.queue[0]) {
		g := l.queue[0]
		l.queue = l.queue[1:]
		s.grant(l, g)
		if l.letIn = time.Now(); first || s.flaw == "of a run of readers only the first is woken" {
			return
		}
	}
}

func (s *rwServer) grant(l *rwLock, g *rwGrant) {
	switch {
	case g.shared && l.shared && s.flaw == "one token in thirty is the reader's own" && s.rarely():
		l.token++
	case g.shared && l.shared && s.flaw == "another token from the fifth reader on" && len(l.holds) == 4:
		l.token++
	case g.shared && l.shared && s.flaw != "a token for each reader":
	case !g.shared && l.shared && s.flaw == "the next writer has the readers' token":
	default:
		l.token++
	}
	l.shared = g.shared
	g.token, g.until = l.token, time.Now().Add(g.ttl)
	if s.flaw == "a share that joins cuts those of others" {
		l.cut(g.until)
	}
	l.holds = append(l.holds, g)
	close(g.comes)
	l.look(s, g.ttl)
}

// cut has no hold last longer.
func (l *rwLock) cut(until time.Time) {
	for _, h := range l.holds {
		if h.until.After(until) {
			h.until = until
		}
	}
}

// look has the server look for what has expired after ttl.
func (l *rwLock) look(s *rwServer, ttl time.Duration) {
	time.AfterFunc(ttl+time.Millisecond, func() { s.on(l.name, func(*rwLock) {}) })
}

// ask grants g now, or puts it in the queue if it waits.
func (s *rwServer) ask(name string, g *rwGrant, waits bool) (granted bool) {
	s.on(name, func(l *rwLock) {
		passes := g.shared && (s.flaw == "readers are admitted while a writer is first" ||
			s.flaw == "readers are admitted while others are let in" && time.Since(l.letIn) < memoryTTL/10)
		if (len(l.queue) == 0 || passes) && s.admits(l, g) {
			s.grant(l, g)
			granted = true
			return
		}
		if waits {
			s.enqueue(l, g)
		}
	})
	return granted
}

func (s *rwServer) enqueue(l *rwLock, g *rwGrant) {
	place := len(l.queue)
	if s.flaw == "writers pass readers" && !g.shared {
		place = slices.IndexFunc(append(l.queue, &rwGrant{shared: true}), func(w *rwGrant) bool { return w.shared })
	}
	l.queue = slices.Insert(l.queue, place, g)
}

// forget ends what owner waits for, or has.
func (s *rwServer) forget(name string, g *rwGrant) {
	if g.shared && s.flaw == "a reader that gives up keeps its place" {
		return
	}
	s.on(name, func(l *rwLock) {
		owned := func(w *rwGrant) bool {
			return w.owner == g.owner || g.shared && w.shared && s.flaw == "a reader that gives up takes its neighbours along"
		}
		waited := slices.ContainsFunc(l.queue, owned)
		l.queue = slices.DeleteFunc(l.queue, owned)
		l.holds = slices.DeleteFunc(l.holds, func(h *rwGrant) bool { return h.owner == g.owner })
		if waited && s.flaw == "a writer that gives up lets in all readers" {
			writers := slices.DeleteFunc(slices.Clone(l.queue), func(w *rwGrant) bool { return w.shared })
			l.queue = append(slices.DeleteFunc(l.queue, func(w *rwGrant) bool { return !w.shared }), writers...)
		}
		if !waited || s.flaw != "a writer that gives up wakes nobody" {
			s.serve(l, false)
		}
	})
}

// hold is owner's, or nil.
func (l *rwLock) hold(owner string) *rwGrant {
	if i := slices.IndexFunc(l.holds, func(g *rwGrant) bool { return g.owner == owner }); i >= 0 {
		return l.holds[i]
	}
	return nil
}

func (s *rwServer) release(name, owner string) (held bool) {
	s.on(name, func(l *rwLock) {
		g := l.hold(owner)
		held = g != nil
		if !held && s.flaw == "a release is a count" && len(l.holds) > 0 {
			g = l.holds[0]
		}
		l.holds = slices.DeleteFunc(l.holds, func(h *rwGrant) bool { return h == g })
		if s.flaw == "the last reader wakes no writer" && g != nil && g.shared && len(l.queue) > 0 && !l.queue[0].shared {
			return
		}
		s.serve(l, false)
	})
	return held
}

func (s *rwServer) extend(name, owner string, ttl time.Duration) (held bool) {
	s.on(name, func(l *rwLock) {
		g := l.hold(owner)
		if among := l.shared && len(l.holds) > 0; g == nil && among && s.flaw == "Extend revives a share that ended" {
			g = &rwGrant{owner: owner, shared: true, ttl: ttl, token: l.token}
			l.holds = append(l.holds, g)
		} else if g == nil && among && s.flaw == "Extend says nil of a share that ended" {
			held = true
			return
		}
		if held = g != nil; !held {
			return
		}
		g.until = time.Now().Add(ttl)
		l.look(s, ttl)
		switch {
		case g.shared && s.flaw == "one TTL for all readers":
			for _, h := range l.holds {
				if h.until.Before(g.until) {
					h.until = g.until
				}
			}
		case s.flaw == "an Extend cuts the shares of others":
			l.cut(g.until)
		}
	})
	return held
}

// downgrade makes owner's hold a share, and returns its token.
func (s *rwServer) downgrade(name, owner string) (token uint64, held bool) {
	s.on(name, func(l *rwLock) {
		g := l.hold(owner)
		if g == nil && s.flaw == "a downgrade checks no owner" && len(l.holds) > 0 {
			g = l.holds[0]
		}
		if held = g != nil; !held {
			return
		}
		g.shared, l.shared = true, true
		switch s.flaw {
		case "a downgrade cuts the TTL":
			g.until = time.Now().Add(g.ttl / 4)
			l.look(s, g.ttl/4)
		case "a downgrade has a new token":
			l.token++
			g.token = l.token
		case "a downgrade is a release and a take":
			l.holds = nil
			s.serve(l, false)
			l.holds = append(l.holds, g)
		}
		if token = g.token; s.flaw != "a downgrade wakes nobody" {
			s.serve(l, false)
		}
	})
	return token, held
}
