package zookeeper

import (
	"context"
	"errors"
	"path"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/sessions"
)

// How a place in the queue begins and ends.
//
//	create   an ephemeral sequential node, whose name contains a fresh random owner
//	resolve  the outcome of create is found out, if its reply was lost
//	release  the node is deleted; finish records how that ended, once
//
// Invariants. (1) A lease creates one node at most, and the next one only when it is known that the
// last create has made none and will make none. (2) finish has one outcome, which every later
// release returns. (3) What was created is removed: a create is never abandoned.
//
// Lost reply to create: the library may still have the request in its queue, so resolve waits until
// the call has returned. Then everything that was sent on the old connection has reached the leader
// before the sync of find, or is refused: a session that is resumed on another connection takes no
// more requests from the former one. So the read after the sync decides.
//
// Lost reply to delete: release repeats it, and finds no node. If it had sent a delete before, the
// session is the same, and no ForceRelease has named the node in the parent's data (operate.go),
// that delete has removed the node, and the release was a success. Otherwise the hold was lost.

// lease is one place in the queue of a lock, whether or not it is the first: a node on a session.
type lease struct {
	lock
	node   string // the path of ours, without the number
	owner  string
	data   []byte
	shared bool        // a share is wanted
	left   atomic.Bool // see claim.Leave
	awaits awaiter     // of the node whose end it waits for

	mu sync.Mutex // guards leaseState
	leaseState
}

// leaseState is what is known of a lease by now.
type leaseState struct {
	token    uint64    // 0: not granted. See queue.go, and of a share share.go
	path     string    // of our node; empty if it is not known
	holder   string    // the first node of the queue, in the last read
	witness  string    // a share there whose token is settled
	to       []string  // the paths to which moves have brought our node, or may have
	making   *creation // of the node, unless its outcome is known
	deletes  int       // that were sent
	finished bool      // released, or lost
	released bool
}

// leaving reports whether the lease has ended, or may be about to by a delete of our own.
func (s leaseState) leaving() bool { return s.finished || s.deletes > 0 }

// newLease returns a lease on the session, which has no node yet.
func newLease(s *session, req driver.Request) *lease {
	owner := sessions.NewOwner()
	if req.Shared {
		owner = waitingMark + owner[len(waitingMark):]
	}
	parent := parentOf(s.driver.chroot, req.Name)
	return &lease{
		lock: lock{s, parent}, node: nodeOf(parent, owner), owner: owner, data: []byte(req.Metadata), shared: req.Shared,
	}
}

func (l *lease) state() leaseState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leaseState
}

// lost reports whether the lease has ended.
func (l *lease) lost() bool { return l.state().finished || l.session.Ended() }

// creation is a call that creates a node.
type creation struct {
	read chan *queueView // has the queue as it was read right behind the node, if it was
	done chan struct{}   // closed when the call has returned
	path string
	err  error
}

// create sends the request that creates our node, and right behind it one that reads the queue. The
// library cannot send both at once, but a server answers the requests of a connection in order:
// nearly always the second one finds the node. If not, the queue is read again. A share gets the
// next read of its session's shares instead: see readTogether.
func (l *lease) create(ctx context.Context) (*creation, error) {
	s := l.session
	if err := s.connected(ctx); err != nil {
		return nil, err
	}
	c := &creation{read: make(chan *queueView, 1), done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.finished { // its session has ended
		return nil, errSessionEnded
	}
	err := s.driver.spawn(func() {
		_ = s.driver.spawn(func() {
			defer close(c.read)
			ctx, cancel := context.WithTimeout(s.Context(), s.TTL/2)
			defer cancel()
			if v, err := l.read(ctx); err == nil {
				c.read <- v
			}
		})
		c.err = s.request(writes, func() (err error) {
			c.path, err = s.conn.Create(l.node, l.data, zk.FlagEphemeralSequential, s.driver.acl)
			return err
		})
		close(c.done)
	})
	if err == nil {
		l.making = c
	}
	return c, err
}

// resolve finds out what the last create has done. If it has made nothing, and will not, there is no
// path, and failure is the reason.
func (l *lease) resolve(ctx context.Context) (failure, err error) {
	c := l.state().making
	if c == nil {
		return nil, nil
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return nil, l.session.noAnswer(ctx)
	}
	path := c.path
	if c.err != nil && !isAny(c.err, zk.ErrNoNode, zk.ErrNoAuth) { // which are replies
		if path, err = l.find(ctx); err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.path, l.making = path, nil
	return c.err, nil
}

// find looks for a node of our owner.
func (l *lease) find(ctx context.Context) (path string, err error) {
	v, err := l.latest(ctx)
	if isAny(err, zk.ErrNoNode, errSessionEnded) { // it was removed with its session
		return "", nil
	}
	for _, c := range contenders(v.children) {
		if c.owner == l.owner {
			path = l.parent + "/" + c.ID
		}
	}
	return path, err
}

// release deletes our node.
func (l *lease) release(ctx context.Context) error {
	for {
		if l.state().finished {
			return l.finish(false) // which returns the first outcome
		}
		if _, err := l.resolve(ctx); err != nil {
			return err
		}
		now := l.state()
		if now.path == "" { // nothing was made, or granted
			return l.finish(true)
		}
		again, err := call(ctx, l.session, writes, func(conn *zk.Conn) (again bool, err error) {
			l.mu.Lock()
			l.deletes++
			l.mu.Unlock()
			err = conn.Delete(now.path, -1)
			return l.state().deletes > 1, err
		})
		switch {
		case err == nil:
			return l.finish(true)
		case errors.Is(err, errSessionEnded):
			return l.finish(false)
		case !errors.Is(err, zk.ErrNoNode):
			return err
		}
		moved, err := l.moved(ctx, now.path)
		if err != nil {
			return err
		}
		if moved {
			continue
		}
		ours := again // a server answers NoNode only while the session lasts
		if ours && now.token != 0 {
			forced, err := l.forced(ctx)
			if err != nil {
				return err
			}
			ours = !forced
		}
		return l.finish(now.token == 0 || ours)
	}
}

// forced reports whether a ForceRelease has removed our node, or may have: a parent that has gone
// since does not tell.
func (l *lease) forced(ctx context.Context) (bool, error) {
	at, err := l.registry(ctx)
	if errors.Is(err, zk.ErrNoNode) {
		return true, nil
	}
	now := l.state()
	return slices.ContainsFunc(append([]string{now.path}, now.to...), func(name string) bool {
		own, ok := parseContender(path.Base(name))
		return ok && (own.number <= at.dropped || slices.Contains(at.forced, own.id()))
	}), err
}

// finish ends the lease, unless it has ended. Its result is that of a Release.
func (l *lease) finish(released bool) error {
	l.mu.Lock()
	again := l.finished
	l.finished, l.released = true, again && l.released || !again && released
	now := l.leaseState
	l.mu.Unlock()
	if !again {
		l.session.watches.forget(&l.awaits)
		l.session.Leave(l)
	}
	if now.released {
		return nil
	}
	return driver.ErrLost
}

// watch reports the loss of a hold when its node is gone, unless the holder has removed it. If the
// watch fails, the next renewal finds the loss.
func (l *lease) watch() error {
	s := l.session
	ctx, cancel := context.WithTimeout(s.Context(), pace(s.TTL)/3)
	defer cancel()
	for {
		now := l.state()
		if now.leaving() {
			return nil
		}
		gone, err := l.await(ctx, now.path, func() { _ = s.driver.spawn(func() { _ = l.watch() }) })
		if err != nil || !gone {
			return err
		}
		moved, err := l.moved(ctx, now.path)
		if err != nil {
			return err
		}
		if !moved {
			if !l.state().leaving() {
				s.ReportLost(l)
			}
			return nil
		}
	}
}
