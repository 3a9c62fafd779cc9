package zookeeper

import (
	"context"
	"errors"
	"path"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
)

// lease is one place in the queue, whether or not it is the first: a node on a session.
type lease struct {
	place
	session *session
	data    []byte
	shared  bool        // a share is wanted
	left    atomic.Bool // see claim.Leave
	awaits  string      // the node whose end it hears of; guarded by session.mu
	witness string      // a share whose token is settled, in the last read of one that is not

	mu       sync.Mutex
	token    uint64    // the parent's pzxid in the read that showed us first; of a share see agree
	path     string    // of our node; empty if it is not known
	holder   string    // the first node of the queue, in the last read
	to       string    // the path to which a move has brought our node, or may have; empty: there was none
	making   *creation // of the node, unless it is known how that ended
	asked    int       // deletions that were sent
	finished bool      // released, or lost
	released bool
}

// Token returns 0 until the lock is granted.
func (l *lease) Token() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// release deletes our node. On the application's connection it does so when the session has ended,
// too: that may have been our own view of it, or the node another session's.
func (l *lease) release(ctx context.Context) error {
	if l.lost() {
		return l.finish(false) // which returns how it has ended
	}
	if _, err := l.settle(ctx); err != nil {
		return err
	}
	path := l.at()
	if path == "" {
		return l.finish(l.Token() == 0)
	}
	again, err := call(ctx, l.session, writes|loosely, func(conn *zk.Conn) (again bool, err error) {
		l.mu.Lock()
		l.asked++
		l.mu.Unlock()
		err = conn.Delete(path, -1)
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.asked > 1, err
	})
	switch {
	case err == nil:
		return l.finish(true)
	case errors.Is(err, errSessionEnded):
		return l.finish(false)
	case errors.Is(err, zk.ErrNoNode):
		// If another deletion was sent, before or meanwhile, and the session is still the same, it is we who have removed it, unless a
		// ForceRelease has.
		if moved, err := l.moved(ctx, path); err != nil {
			return err
		} else if moved {
			return l.release(ctx)
		}
		ours := again && l.session.lasts()
		if ours && l.Token() != 0 {
			forced, err := l.forced(ctx)
			if err != nil {
				return err
			}
			ours = !forced
		}
		return l.finish(l.Token() == 0 || ours)
	default:
		return err
	}
}

// settle finds out what has become of the call that makes our node. If that has made nothing, and will not, there is no path, and
// refusal is why, if the server has said so.
func (l *lease) settle(ctx context.Context) (refusal, err error) {
	l.mu.Lock()
	c := l.making
	l.mu.Unlock()
	if c == nil {
		return nil, nil
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	path := c.path
	switch {
	case refused(c.err):
		refusal = c.err
	case c.err != nil:
		if path, err = l.find(ctx, c); err != nil {
			return nil, err
		}
	}
	l.made(path)
	return refusal, nil
}

// made takes in how the making of our node has ended.
func (l *lease) made(path string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.path, l.making = path, nil
}

// find looks for what a call has made whose outcome is not known, but which has returned: nothing of it is still to be sent. What
// the library sent on a connection before, is at the leader before the sync, or comes after that connection was
// replaced and is refused.
func (l *lease) find(ctx context.Context, c *creation) (path string, err error) {
	s := l.session
	if s.Ended() && (s.own != nil || c.id == s.id && s.conn.SessionID() != s.id) {
		return "", nil // it went with its session
	}
	v, err := s.latest(ctx, reads|loosely, l.parent)
	if errors.Is(err, zk.ErrNoNode) {
		return "", nil
	}
	for _, c := range contenders(v.children) {
		if c.owner == l.owner {
			path = l.parent + "/" + c.name
		}
	}
	return path, err
}

// finish ends the lease, unless it has ended. Its result is that of a Release.
func (l *lease) finish(released bool) error {
	l.mu.Lock()
	again := l.finished
	l.finished, l.released = true, again && l.released || !again && released
	released = l.released
	at, to := l.path, l.to
	l.mu.Unlock()
	if !again {
		l.session.forget(at)
		l.session.forgetAwait(l)
		if to != "" {
			l.session.unsettle(l.parent, path.Base(to))
		}
		l.session.Leave(l)
	}
	if released {
		return nil
	}
	return driver.ErrLost
}

// lost reports whether the lease has ended.
func (l *lease) lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.finished
}

// leaving reports whether the lease has ended, or its node may have been removed by ourselves.
func (l *lease) leaving() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.finished || l.asked > 0
}

// at returns the path of our node, or "" if that is not known.
func (l *lease) at() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.path
}
