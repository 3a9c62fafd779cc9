package zookeeper

import (
	"context"
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"
)

// phases have what the shares of one session have in common, by the nodes of locks. When a writer
// leaves, all of them come at once: each would read the whole queue, and they would all begin a phase.
type phases struct {
	mu    sync.Mutex
	locks map[string]*phase
}

// phase is that of one lock.
type phase struct {
	reading   *sharedView   // under way
	next      *sharedView   // to be read after that; nil: nobody has come since it began
	beginning chan struct{} // closed when the one has begun that begins a phase; nil: there is none
	settled   string        // the node whose token was settled latest, if it was not released
}

// sharedView is a queue, and how to begin a phase there.
type sharedView struct {
	done  chan struct{} // closed when it was read
	err   error
	queue []contender
	pzxid int64
	begin *zk.SetDataRequest // writes the parent's data as they were before the view: it fails if another has begun a phase since
}

// of calls f with the phase of a lock's node, which it forgets if nothing is left of it.
func (p *phases) of(parent string, f func(*phase)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	one := p.locks[parent]
	if one == nil {
		one = new(phase)
		p.locks[parent] = one
	}
	if f(one); *one == (phase{}) {
		delete(p.locks, parent)
	}
}

// lookTogether reads the queue, once for all of the session that want to while a read is under way.
// None sees what was read before it came.
func (k lock) lookTogether(ctx context.Context) (*sharedView, error) {
	var v *sharedView
	var err error
	k.session.phases.of(k.parent, func(p *phase) {
		if p.next == nil {
			p.next = &sharedView{done: make(chan struct{})}
		}
		v = p.next
		if p.reading == nil {
			p.reading, p.next = p.next, nil
			err = k.session.driver.spawn(func() { k.readShared(v) })
		}
	})
	if err != nil {
		return nil, err
	}
	select {
	case <-v.done:
		return v, v.err
	case <-ctx.Done():
		return nil, k.session.noAnswer(ctx)
	}
}

// readShared reads views until nobody wants another.
func (k lock) readShared(v *sharedView) {
	s := k.session
	for v != nil {
		ctx, cancel := context.WithTimeout(s.Context(), s.TTL/2)
		read, err := call(ctx, s, reads, func(conn *zk.Conn) (read sharedView, err error) {
			data, stat, err := conn.Get(k.parent)
			if err != nil {
				return read, err
			}
			read.begin = &zk.SetDataRequest{Path: k.parent, Data: data, Version: stat.Version}
			seen, err := readView(conn, k.parent)
			read.queue, read.pzxid = inQueue(seen.children), seen.pzxid
			return read, err
		})
		v.queue, v.pzxid, v.begin, v.err = read.queue, read.pzxid, read.begin, err
		switch {
		case err == nil:
		case s.Ended():
			v.err = errSessionEnded
		case ctx.Err() != nil && errors.Is(err, ctx.Err()): // which is not the caller's
			v.err = errNoAnswer
		}
		cancel()
		close(v.done)
		s.phases.of(k.parent, func(p *phase) {
			p.reading, p.next = p.next, nil
			v = p.reading
		})
	}
}

// begin has one of the session at a time call f, which begins a phase. The others wait until it has
// returned.
func (k lock) begin(ctx context.Context, f func() error) error {
	var begun chan struct{}
	first := false
	k.session.phases.of(k.parent, func(p *phase) {
		if first = p.beginning == nil; first {
			p.beginning = make(chan struct{})
		}
		begun = p.beginning
	})
	if first {
		defer k.session.phases.of(k.parent, func(p *phase) {
			close(p.beginning)
			p.beginning = nil
		})
		return f()
	}
	select {
	case <-begun:
		return nil
	case <-ctx.Done():
		return k.session.noAnswer(ctx)
	}
}

// settled returns the node of the share whose token was settled latest, or "".
func (p *phases) settled(parent string) (node string) {
	p.of(parent, func(p *phase) { node = p.settled })
	return node
}

// settle notes that share.
func (p *phases) settle(parent, node string) {
	p.of(parent, func(p *phase) { p.settled = node })
}

// unsettle forgets that share if it is node.
func (p *phases) unsettle(parent, node string) {
	p.of(parent, func(p *phase) {
		if p.settled == node {
			p.settled = ""
		}
	})
}
