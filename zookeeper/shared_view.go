package zookeeper

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"
)

// sharedView is a queue that shares of one session have read together, and how to begin a phase of
// shares there. When a writer leaves, all of them come at once: each would read the whole queue,
// and they would all begin a phase.
type sharedView struct {
	done  chan struct{} // closed when it was read
	err   error
	queue []contender
	pzxid int64
	begin *zk.SetDataRequest // writes the parent's data as they were before the view: it fails if another has begun a phase since

	begun atomic.Bool   // one of them tries to
	over  chan struct{} // closed after that
}

// sharedViews are those of a session that are to be read next, by the nodes of locks. One that is
// nil means that a read is under way, and nobody has come since.
type sharedViews struct {
	mu   sync.Mutex
	next map[string]*sharedView
}

// lookTogether reads the queue, once for all of the session that want to while a read is under way.
// None sees what was read before it came.
func (k lock) lookTogether(ctx context.Context) (*sharedView, error) {
	views := &k.session.sharedViews
	views.mu.Lock()
	v, reading := views.next[k.parent]
	if v == nil {
		v = &sharedView{done: make(chan struct{}), over: make(chan struct{})}
		views.next[k.parent] = v
	}
	views.mu.Unlock()
	if !reading {
		if err := k.session.driver.spawn(k.readShared); err != nil {
			return nil, err
		}
	}
	select {
	case <-v.done:
		return v, v.err
	case <-ctx.Done():
		return nil, k.session.noAnswer(ctx)
	}
}

// readShared reads views until nobody wants another.
func (k lock) readShared() {
	s, views := k.session, &k.session.sharedViews
	for {
		views.mu.Lock()
		v := views.next[k.parent]
		if views.next[k.parent] = nil; v == nil {
			delete(views.next, k.parent)
		}
		views.mu.Unlock()
		if v == nil {
			return
		}
		ctx, cancel := context.WithTimeout(s.Context(), s.TTL/2)
		begin, err := call(ctx, s, reads, func(conn *zk.Conn) (*zk.SetDataRequest, error) {
			data, stat, err := conn.Get(k.parent)
			if err != nil {
				return nil, err
			}
			return &zk.SetDataRequest{Path: k.parent, Data: data, Version: stat.Version}, nil
		})
		if err == nil {
			v.begin = begin
			var seen view
			seen, err = k.view(ctx)
			v.queue, v.pzxid = inQueue(seen.children), seen.pzxid
		}
		switch {
		case s.Ended():
			err = errSessionEnded
		case err != nil && errors.Is(err, ctx.Err()): // which is not the caller's
			err = errNoAnswer
		}
		v.err = err
		cancel()
		close(v.done)
	}
}
