package zookeeper

import (
	"context"
	"errors"
	"path"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// refuseHeld returns the error of a lock that is another's before we make a node, which others
// would take for that of one who waits. The server may be behind its leader: that a lock is held
// counts when it has caught up.
func (l *lease) refuseHeld(ctx context.Context) error {
	s := l.session
	for _, read := range []func(context.Context, kind, string) (view, error){s.view, s.latest} {
		seen, err := read(ctx, reads, l.parent)
		queue := inQueue(seen.children)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return nil
		case err != nil:
			return err
		case !slices.ContainsFunc(queue, func(c contender) bool { return !l.shared || !c.shared }):
			return nil
		}
		l.mu.Lock()
		l.holder = slices.MinFunc(queue, compare).name
		l.mu.Unlock()
	}
	return l.heldBy()
}

// leave takes us out of a queue in which nothing was granted.
func (l *lease) leave(ctx context.Context) error {
	if err := l.release(ctx); !errors.Is(err, driver.ErrLost) {
		return err
	}
	return nil
}

// leaveHeld leaves the queue, and returns that the lock is another's. If the request fails it is
// made again in the background.
func (l *lease) leaveHeld(ctx context.Context) error {
	if l.leave(ctx) != nil {
		s := l.session
		_ = s.driver.spawn(func() {
			for again := true; again && clock.Sleep(s.Context(), max(sweepAgain, pace(s.TTL)/retriesPerTTL)) == nil; {
				ctx, cancel := context.WithTimeout(s.Context(), s.TTL/2)
				again = l.leave(ctx) != nil
				cancel()
			}
		})
	}
	return l.heldBy()
}

// stand returns the node that is before ours, if there is one. It makes ours, if it is not there
// yet. A share before which no writer stands gets its token.
func (l *lease) stand(ctx context.Context) (before string, err error) {
	if l.at() == "" {
		return l.enter(ctx)
	}
	if before := l.session.awaits(l); before != "" {
		if gone, err := l.departed(ctx, before); err != nil || !gone {
			return path.Base(before), err
		}
	}
	return l.look(ctx)
}

// enter makes our node, and returns the one before it, if there is one.
func (l *lease) enter(ctx context.Context) (before string, err error) {
	seen, err := l.comeIn(ctx)
	if err != nil {
		return "", err
	}
	if !l.session.lasts() {
		return "", errSessionEnded
	}
	if err := l.refuse(ctx); err != nil {
		return "", err
	}
	if before, ok := l.seen(seen); ok && l.session.lasts() {
		return l.agree(ctx, before)
	}
	return l.look(ctx)
}

// comeIn makes our node, unless an earlier request has, and before that those above it that are
// missing. It returns what was read right behind that, if anything was.
func (l *lease) comeIn(ctx context.Context) (seen view, err error) {
	var made *creation
	for {
		refusal, err := l.settle(ctx)
		switch {
		case err != nil:
			return seen, err
		case l.at() != "":
			return made.seen(ctx), nil
		case errors.Is(refusal, zk.ErrNoNode):
			err = l.session.makeParents(ctx, l.parent)
		default:
			err = refusal
		}
		if err == nil {
			err = l.vacant(ctx)
		}
		if err == nil {
			err = l.session.connected(ctx, writes)
		}
		if err == nil {
			made, err = l.create()
		}
		if err != nil {
			return seen, err
		}
	}
}

// creation is a call that makes a node. It may stand in the library's queue for long, and be sent
// when we have forgotten what for. So it is never given up: what it made is removed.
type creation struct {
	read chan view     // has what was read right behind it
	done chan struct{} // closed when the call has returned
	path string
	err  error
	id   int64 // of the connection's session by then
}

// create sends the request that makes our node, and right behind it one that reads the queue. The
// library has no way of sending both at once, but requests of a connection are answered in the
// order in which they came: nearly always the second one finds the node. Else it has to be read
// again.
func (l *lease) create() (*creation, error) {
	s := l.session
	c := &creation{read: make(chan view, 1), done: make(chan struct{})}
	l.mu.Lock()
	gone := l.finished // by the sweep of a session that has ended
	if !gone {
		l.making = c
	}
	l.mu.Unlock()
	if gone {
		return nil, errSessionEnded
	}
	err := s.driver.spawn(func() {
		sent := clock.Now()
		ripe := s.ripe(sent)
		_ = s.driver.spawn(func() {
			v, _ := readView(s.conn, l.parent)
			c.read <- v
		})
		c.path, c.err = s.conn.Create(l.node, l.data, zk.FlagEphemeralSequential, s.driver.acl)
		c.id = s.conn.SessionID()
		_ = s.heard(writes, sent, ripe, c.err)
		close(c.done)
	})
	if err != nil {
		l.made("")
	}
	return c, err
}

// seen returns what was read right behind c. c is nil if nothing was.
func (c *creation) seen(ctx context.Context) (seen view) {
	if c != nil {
		select {
		case seen = <-c.read:
		case <-ctx.Done():
		}
	}
	return seen
}

// seen returns the node before ours among the children, and whether ours is there.
func (l *lease) seen(v view) (before string, ok bool) {
	if l.shared {
		return l.seenShared(inQueue(v.children))
	}
	before, first, ok := ahead(v.children, l.owner)
	if !ok {
		return "", false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder = first; before == "" && l.token == 0 {
		l.token = uint64(v.pzxid)
	}
	return before, true
}

// heldBy returns the error of a lock that is another's, as we have seen last.
func (l *lease) heldBy() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return &driver.HeldError{Holder: driver.Participant{ID: l.holder}}
}

// look returns the node that is before ours, if there is one. It also looks at our own: somebody
// may have removed it.
func (l *lease) look(ctx context.Context) (before string, err error) {
	if l.shared {
		_, before, err = l.lookToBegin(ctx)
		if err != nil {
			return "", err
		}
		return l.agree(ctx, before)
	}
	v, err := l.session.view(ctx, reads, l.parent)
	ok := false
	if err == nil {
		before, ok = l.seen(v)
	}
	if errors.Is(err, zk.ErrNoNode) || err == nil && !ok {
		return "", l.removed()
	}
	return before, err
}

// removed returns why our node is gone.
func (l *lease) removed() error {
	if !l.session.lasts() {
		return errSessionEnded
	}
	return errRemoved
}

// departed reports whether the node before ours is gone, of which an event was to tell. It fails if
// ours is.
func (l *lease) departed(ctx context.Context, before string) (gone bool, err error) {
	there, err := call(ctx, l.session, reads, func(conn *zk.Conn) (there [2]bool, err error) {
		for i, node := range []string{l.at(), before} {
			if there[i], _, err = conn.Exists(node); err != nil {
				break
			}
		}
		return there, err
	})
	if err == nil && !there[0] {
		err = l.removed()
	}
	return err == nil && !there[1], err
}

// confirm has the session of one that is granted the lock last long enough to begin a hold.
func (l *lease) confirm(ctx context.Context) error {
	s := l.session
	s.forgetAwait(l)
	if s.Left() >= s.TTL*3/5 {
		return nil
	}
	err := s.refresh(ctx, l.at(), time.Time{})
	if errors.Is(err, zk.ErrNoNode) {
		return l.removed()
	}
	return err
}
