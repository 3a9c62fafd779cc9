package zookeeper

import (
	"context"

	"github.com/go-zookeeper/zk"
)

// phase is what the shares of one session have in common, for one lock. When a writer leaves, all
// of them come at once: each would read the whole queue, and they would all begin a phase.
type phase struct {
	reading   *sharedView // under way
	next      *sharedView // to be read after that; nil: nobody has come since it began
	beginning chan struct{}
	settled   string // the node whose token was settled latest, if it was not released
}

// sharedView is a queue, and how to begin a phase there.
type sharedView struct {
	done  chan struct{} // closed when it was read
	err   error
	queue []contender
	pzxid int64
	begin *zk.SetDataRequest // writes the parent's data as they were before the view: it fails if another has begun a phase since
}

// phase returns that of a lock's node. The caller holds s.mu.
func (s *session) phase(parent string) *phase {
	p := s.phases[parent]
	if p == nil {
		p = new(phase)
		s.phases[parent] = p
	}
	return p
}

// inPhase calls f with the phase of a lock's node, which it forgets if nothing is left of it.
func (s *session) inPhase(parent string, f func(p *phase)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.phase(parent)
	if f(p); *p == (phase{}) {
		delete(s.phases, parent)
	}
}

// lookTogether reads the queue, once for all of the session that want to while a read is under way.
// None sees what was read before it came.
func (s *session) lookTogether(ctx context.Context, parent string) (*sharedView, error) {
	var v *sharedView
	var err error
	s.inPhase(parent, func(p *phase) {
		if p.next == nil {
			p.next = &sharedView{done: make(chan struct{})}
		}
		v = p.next
		if p.reading == nil {
			p.reading, p.next = p.next, nil
			err = s.driver.spawn(func() { s.readShared(parent, v) })
		}
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-v.done:
		return v, v.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// readShared reads views until nobody wants another.
func (s *session) readShared(parent string, v *sharedView) {
	for v != nil {
		ctx, cancel := context.WithTimeout(s.Context(), s.TTL/2)
		_, v.err = call(ctx, s, reads, func(conn *zk.Conn) (struct{}, error) {
			data, stat, err := conn.Get(parent)
			if err != nil {
				return struct{}{}, err
			}
			seen, err := readView(conn, parent)
			v.queue, v.pzxid = inQueue(seen.children), seen.pzxid
			v.begin = &zk.SetDataRequest{Path: parent, Data: data, Version: stat.Version}
			return struct{}{}, err
		})
		switch {
		case v.err == nil:
		case s.Ended():
			v.err = ended(v.err)
		case ctx.Err() != nil:
			v.err = errNoAnswer
		}
		cancel()
		close(v.done)
		s.inPhase(parent, func(p *phase) {
			p.reading, p.next = p.next, nil
			v = p.reading
		})
	}
}

// beginning reports whether the caller is the first to begin a phase, who is to call begun. Else
// the channel is closed then.
func (s *session) beginning(parent string) (begun <-chan struct{}, first bool) {
	s.inPhase(parent, func(p *phase) {
		if first = p.beginning == nil; first {
			p.beginning = make(chan struct{})
		}
		begun = p.beginning
	})
	return begun, first
}

func (s *session) begun(parent string) {
	s.inPhase(parent, func(p *phase) {
		close(p.beginning)
		p.beginning = nil
	})
}

// settle notes the latest share whose token is settled.
func (s *session) settle(parent, node string) {
	s.inPhase(parent, func(p *phase) { p.settled = node })
}

// settled returns that share's node, or "".
func (s *session) settled(parent string) (node string) {
	s.inPhase(parent, func(p *phase) { node = p.settled })
	return node
}

// unsettle forgets that share if it is node.
func (s *session) unsettle(parent, node string) {
	s.inPhase(parent, func(p *phase) {
		if p.settled == node {
			p.settled = ""
		}
	})
}
