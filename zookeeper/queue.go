package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"
)

// How a contender takes the lock: the recipe of ZooKeeper's documentation.
//
//	enqueue      create an ephemeral sequential node below the parent, and read its children: they are
//	             sent together, so that an uncontended take is one round trip
//	predecessor  the node with the next smaller number; before a share, the last writer's
//	wait         a watch on the predecessor; when it fires, read the children again
//	granted      no predecessor: the token is the parent's pzxid in that read; then, unless the
//	             session was confirmed within two fifths of a TTL, it is refreshed by quorum
//	             writes that check our node (confirmGrant)
//
// Invariants. (1) The smallest number has the lock. The servers assign numbers in the order of their
// transactions, and never assign one twice while the parent exists. So nobody can come before us
// later. What a server answers us includes the transaction that created our node, and so all nodes
// before it, also after a move: a server refuses a client that has seen a later transaction. A
// removal that the server has yet to hear of only delays us. (2) Tokens increase: pzxid is the
// transaction that last changed the children. The read contains our node and not our predecessor's,
// so it is at least the transaction that removed the previous holder, and larger than what that one
// had read. (3) A waiter watches one node, so a release wakes one waiter.
//
// Why the children are read: only they tell who the predecessor is, since its name contains its owner.
// The reply has 55 bytes for each contender, and no request returns less.
//
// Lost reply to create: see lease.go. Lost reply to a read: it is read again. Lost event: waiters poll
// (sessions.PollInterval).
//
// Numbers end at 2147483647: see lastNumber.

// predecessor returns the node that is before ours, if there is one. It creates ours, if it is not
// there yet. A share without a predecessor gets its token.
func (l *lease) predecessor(ctx context.Context) (before string, err error) {
	if l.state().path == "" {
		return l.enqueue(ctx)
	}
	if before := l.session.watches.awaited(l); before != "" { // of whose end an event may have been lost
		there, err := l.session.exist(ctx, l.state().path, before)
		switch {
		case err != nil:
			return "", err
		case !there[0]:
			return "", l.removed()
		case there[1]:
			return path.Base(before), nil
		}
	}
	return l.readPredecessor(ctx)
}

// enqueue creates our node, unless an earlier request has, and before that the nodes above it that
// are missing. It returns the node before ours, if there is one.
func (l *lease) enqueue(ctx context.Context) (before string, err error) {
	var made *creation
	for {
		failure, err := l.resolve(ctx)
		if err == nil && l.state().path != "" {
			break
		}
		switch {
		case err != nil, errors.Is(failure, zk.ErrConnectionClosed):
		case errors.Is(failure, zk.ErrNoNode):
			err = l.createNodes(ctx, l.parent)
		default:
			err = failure
		}
		if err == nil {
			err = l.checkNumbers(ctx)
		}
		if err == nil {
			made, err = l.create(ctx)
		}
		if err != nil {
			return "", err
		}
	}
	if !l.session.lasts() {
		return "", errSessionEnded
	}
	if own, ok := parseContender(path.Base(l.state().path)); ok && !own.counts() {
		l.session.driver.exhausted.Store(l.parent, nil)
		return "", fmt.Errorf("%s: %w", l.parent, errNumbered)
	}
	if made != nil {
		select {
		case v := <-made.read:
			if before, ok := l.observe(v); ok && l.session.lasts() {
				return l.settleToken(ctx, v, before)
			}
		case <-ctx.Done():
		}
	}
	return l.readPredecessor(ctx)
}

// observe records what a read of the queue says of our node, and returns the node before ours; ok is
// false if ours is not there, or nothing was read.
func (l *lease) observe(v *queueView) (before string, ok bool) {
	if v == nil {
		return "", false
	}
	now, queue := l.state(), v.queue
	// A number alone does not identify ours: numbers begin anew with the parent.
	i := slices.IndexFunc(queue, func(c contender) bool {
		node := l.parent + "/" + c.ID
		return node == now.path || slices.Contains(now.to, node)
	})
	if i < 0 {
		return "", false
	}
	own, last := queue[i], ahead(queue, queue[i], l.shared)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holder, l.witness = slices.MinFunc(queue, compare).ID, ""
	for _, c := range queue {
		if c.Token != 0 {
			l.witness = c.ID
		}
	}
	switch {
	case own.Token != 0:
		l.path, l.token = l.parent+"/"+own.ID, own.Token
	case !l.shared && last.ID == "" && l.token == 0:
		l.token = uint64(v.pzxid)
	}
	return last.ID, true
}

// readPredecessor reads the queue, and returns the node that is before ours, if there is one. It
// fails if ours is gone. A share without a predecessor gets its token.
func (l *lease) readPredecessor(ctx context.Context) (before string, err error) {
	v, before, err := l.look(ctx)
	if err != nil {
		return "", err
	}
	return l.settleToken(ctx, v, before)
}

// look reads the queue, and returns the node that is before ours. It fails if ours is gone.
func (l *lease) look(ctx context.Context) (v *queueView, before string, err error) {
	v, err = l.read(ctx)
	before, ok := l.observe(v)
	if errors.Is(err, zk.ErrNoNode) || err == nil && !ok {
		err = l.removed()
	}
	return v, before, err
}

// await has wake called when the node changes or is gone, or the session ends. It returns true if
// the node is gone already.
func (l *lease) await(ctx context.Context, node string, wake func()) (gone bool, err error) {
	s := l.session
	w := s.watches.join(&l.awaits, node, wake) // before it is set: an event may come as soon as it is
	if w != nil {
		gone, err = call(ctx, s, reads, func(conn *zk.Conn) (gone bool, err error) {
			_, _, _, err = conn.GetW(node) // ExistsW would watch for a node to come that never does
			if errors.Is(err, zk.ErrNoNode) {
				return true, nil
			}
			if err == nil {
				s.watches.mu.Lock()
				w.set = true // and it may have fired by now
				s.watches.mu.Unlock()
			}
			return false, err
		})
	}
	if gone {
		s.watches.forget(&l.awaits)
	}
	if err == nil && s.Ended() { // nobody else wakes it then
		err = errSessionEnded
	}
	return gone, err
}

// removed returns the error of a node that is gone.
func (l *lease) removed() error {
	if !l.session.lasts() {
		return errSessionEnded
	}
	return errRemoved
}

// confirmGrant refreshes the session of a contender that is granted the lock, by quorum writes that
// also check its node.
func (l *lease) confirmGrant(ctx context.Context) error {
	s := l.session
	s.watches.forget(&l.awaits)
	err := s.refresh(ctx, l.state().path, time.Time{})
	if errors.Is(err, zk.ErrNoNode) {
		return l.removed()
	}
	return err
}
