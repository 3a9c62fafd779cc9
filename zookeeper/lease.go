package zookeeper

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// lease is one place in the queue of a lock, whether or not it is the first: a node on a session.
type lease struct {
	lock
	node   string // the path of ours, but for the number
	owner  string
	data   []byte
	shared bool        // a share is wanted
	left   atomic.Bool // see claim.Leave
	awaits awaiter     // of the node whose end it hears of

	mu sync.Mutex
	leaseState
}

// leaseState is what is known of a lease by now. It is guarded by the lease's mutex.
type leaseState struct {
	token    uint64    // the parent's pzxid in the read that showed us first; of a share see agree. 0: not granted
	path     string    // of our node; empty if it is not known
	holder   string    // the first node of the queue, in the last read
	witness  string    // a share there whose token is settled
	to       string    // the path to which a move has brought our node, or may have; empty: there was none
	making   *creation // of the node, unless it is known how that ended
	asked    int       // deletions that were sent
	finished bool      // released, or lost
	released bool
}

// leaving reports whether the lease has ended, or its node may have been removed by ourselves.
func (s leaseState) leaving() bool { return s.finished || s.asked > 0 }

func (l *lease) state() leaseState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leaseState
}

// lost reports whether the lease has ended.
func (l *lease) lost() bool { return l.state().finished || l.session.Ended() }

// release deletes our node. If another deletion was sent, before or meanwhile, and the session is
// still the same, it is we who have removed a node that is gone, unless a ForceRelease has.
func (l *lease) release(ctx context.Context) error {
	for {
		if l.state().finished {
			return l.finish(false) // which returns how it has ended
		}
		if _, err := l.settle(ctx); err != nil {
			return err
		}
		now := l.state()
		if now.path == "" {
			return l.finish(now.token == 0)
		}
		again, err := call(ctx, l.session, writes, func(conn *zk.Conn) (again bool, err error) {
			l.mu.Lock()
			l.asked++
			l.mu.Unlock()
			err = conn.Delete(now.path, -1)
			return l.state().asked > 1, err
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
		ours := again && l.session.lasts()
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

// creation is a call that makes a node. It may stand in the library's queue for long, and be sent
// when we have forgotten what for. So it is never given up: what it made is removed.
type creation struct {
	read chan view     // has what was read right behind it
	done chan struct{} // closed when the call has returned
	path string
	err  error
}

// create sends the request that makes our node, and right behind it one that reads the queue. The
// library has no way of sending both at once, but requests of a connection are answered in the
// order in which they came: nearly always the second one finds the node. Else it has to be read
// again.
func (l *lease) create(ctx context.Context) (*creation, error) {
	s := l.session
	if err := s.connected(ctx); err != nil {
		return nil, err
	}
	c := &creation{read: make(chan view, 1), done: make(chan struct{})}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.finished { // its session has ended
		return nil, errSessionEnded
	}
	err := s.driver.spawn(func() {
		sent := clock.Now()
		ripe := s.ripe(sent)
		_ = s.driver.spawn(func() {
			v, _ := readView(s.conn, l.parent)
			c.read <- v
		})
		path, err := s.conn.Create(l.node, l.data, zk.FlagEphemeralSequential, s.driver.acl)
		c.path, c.err = path, s.onReply(writes, sent, ripe, err)
		close(c.done)
	})
	if err == nil {
		l.making = c
	}
	return c, err
}

// settle finds out what has become of the call that makes our node. If that has made nothing, and
// will not, there is no path, and failure is why.
func (l *lease) settle(ctx context.Context) (failure, err error) {
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
	if c.err != nil && !isAny(c.err, zk.ErrNoNode, zk.ErrNoAuth) { // which are the server's word
		if path, err = l.find(ctx); err != nil {
			return nil, err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.path, l.making = path, nil
	return c.err, nil
}

// find looks for what a call has made whose outcome is not known, but which has returned: nothing
// of it is still to be sent. What the library sent on a connection before is at the leader before
// the sync, or comes after that connection was replaced and is refused.
func (l *lease) find(ctx context.Context) (path string, err error) {
	v, err := l.latest(ctx)
	if isAny(err, zk.ErrNoNode, errSessionEnded) { // it went with its session
		return "", nil
	}
	for _, c := range contenders(v.children) {
		if c.owner == l.owner {
			path = l.parent + "/" + c.name
		}
	}
	return path, err
}
