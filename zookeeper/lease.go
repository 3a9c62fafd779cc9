package zookeeper

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
)

// lease is one contender: a place in the queue, whether or not it is the first. It implements
// [driver.LossNotifier].
type lease struct {
	place
	session *session
	data    []byte

	mu       sync.Mutex
	token    uint64    // the parent's pzxid in the read that showed us first
	path     string    // of our node; empty if it is not known
	making   *creation // of the node, unless it is known how that ended
	refusal  error     // of the last such call
	asked    int       // deletions that were sent
	finished bool      // released, or lost
	released bool
}

// creation is a call that makes a node. It may stand in the library's queue for long, and be sent when we have
// forgotten what for. So it is never given up: what it made is removed.
type creation struct {
	done chan struct{} // closed when the call has returned
	path string
	err  error
	id   int64 // of the connection's session by then
}

// Token implements driver.Lease.
func (l *lease) Token() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.token
}

// Validity implements driver.Lease.
func (l *lease) Validity() time.Duration { return l.session.Left() }

// NotifyLost implements driver.LossNotifier.
func (l *lease) NotifyLost(f func()) { l.session.Notify(l, f) }

// Extend implements driver.Lease.
func (l *lease) Extend(ctx context.Context, ttl time.Duration) error {
	return l.session.driver.ExtendAll(ctx, []driver.Lease{l}, ttl)[0]
}

// Release implements driver.Lease.
func (l *lease) Release(ctx context.Context) error {
	l.mu.Lock()
	finished, released := l.finished, l.released
	l.mu.Unlock()
	switch {
	case released:
		return nil
	case finished:
		return driver.ErrLost
	}
	if err := l.settle(ctx); err != nil {
		if errors.Is(err, errNothingMade) {
			return l.finish(l.Token() == 0)
		}
		return err
	}
	again, err := l.remove(ctx)
	switch {
	case err == nil:
		return l.finish(true)
	case errors.Is(err, errSessionEnded):
		return l.finish(false)
	case errors.Is(err, zk.ErrNoNode):
		// If we had asked before, and the session is still the same, it is we who have removed it.
		return l.finish(l.Token() == 0 || again && l.session.lasts())
	default:
		return err
	}
}

// remove deletes the node. On the application's connection it does so when the session has ended, too: that may
// have been our own view of it, or the node another session's. again says that another deletion was sent, before or
// meanwhile.
func (l *lease) remove(ctx context.Context) (again bool, err error) {
	s := l.session
	if s.Ended() && s.own != nil {
		return false, errSessionEnded
	}
	return loose(ctx, s, writes, func(conn *zk.Conn) (again bool, err error) {
		l.mu.Lock()
		path := l.path
		l.asked++
		l.mu.Unlock()
		err = conn.Delete(path, -1)
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.asked > 1, err
	})
}

// errNothingMade: there is no node of ours, and none will come.
var errNothingMade = errors.New("nothing was made")

// settle finds out what has become of the call that makes our node.
func (l *lease) settle(ctx context.Context) error {
	l.mu.Lock()
	path, c := l.path, l.making
	l.mu.Unlock()
	if path != "" {
		return nil
	}
	if c == nil {
		return errNothingMade
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	switch {
	case c.err == nil:
		l.made(c.path, nil)
		return nil
	case refused(c.err):
		l.made("", c.err)
		return errNothingMade
	}
	path, err := l.find(ctx, c)
	if err != nil {
		return err
	}
	l.made(path, nil)
	if path == "" {
		return errNothingMade
	}
	return nil
}

// made takes in how the making of our node has ended.
func (l *lease) made(path string, refusal error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.path, l.making, l.refusal = path, nil, refusal
}

// whyNot is why the server has not made our node, if it has refused to.
func (l *lease) whyNot() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refusal
}

// find looks for what a call has made whose outcome is not known, but which has returned: nothing of it is still to be sent. What
// the library sent on a connection before, is at the leader before the sync, or comes after that connection was
// replaced and is refused.
func (l *lease) find(ctx context.Context, c *creation) (path string, err error) {
	s := l.session
	if s.Ended() && (s.own != nil || c.id == s.id && s.conn.SessionID() != s.id) {
		return "", nil // it went with its session
	}
	v, err := loose(ctx, s, reads, func(conn *zk.Conn) (view, error) {
		if _, err := conn.Sync(l.parent); err != nil {
			return view{}, err
		}
		return readView(conn, l.parent)
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return "", nil
	case err != nil:
		return "", err
	}
	for _, name := range ownedBy(v.children, l.owner) {
		return l.parent + "/" + name, nil
	}
	return "", nil
}

// finish ends the lease. Its result is that of a Release.
func (l *lease) finish(released bool) error {
	l.mu.Lock()
	again := l.finished
	l.finished = true
	if !again {
		l.released = released
	}
	released = l.released
	l.mu.Unlock()
	if !again {
		l.session.Leave(l)
	}
	if released {
		return nil
	}
	return driver.ErrLost
}

func (l *lease) lost() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.finished
}

// at is the path of our node, if that is known.
func (l *lease) at() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.path
}
