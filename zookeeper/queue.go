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

// stand returns the node that is before ours, if there is one. It makes ours, if it is not there
// yet. A share before which no writer stands gets its token.
func (l *lease) stand(ctx context.Context) (before string, err error) {
	if l.state().path == "" {
		return l.enter(ctx)
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
	return l.look(ctx)
}

// enter makes our node, unless an earlier request has, and before that those above it that are
// missing. It returns the node before ours, if there is one.
func (l *lease) enter(ctx context.Context) (before string, err error) {
	var made *creation
	for {
		failure, err := l.settle(ctx)
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
		case v := <-made.read: // right behind the node
			if before, ok := l.seen(inQueue(v.children), v.pzxid); ok && l.session.lasts() {
				return l.agree(ctx, nil, before)
			}
		case <-ctx.Done():
		}
	}
	return l.look(ctx)
}

// seen returns the node before ours in a queue that was read when pzxid was its last change, and
// whether ours is there. Before a share only writers count.
func (l *lease) seen(queue []contender, pzxid int64) (before string, ok bool) {
	now := l.state()
	// A number alone does not tell ours: the numbers of a lock begin anew with its node.
	i := slices.IndexFunc(queue, func(c contender) bool { return c.name == path.Base(now.path) || c.name == path.Base(now.to) })
	if i < 0 {
		return "", false
	}
	own, last := queue[i], ahead(queue, queue[i], l.shared)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holder, l.witness = slices.MinFunc(queue, compare).name, ""
	for _, c := range queue {
		if c.token != 0 {
			l.witness = c.name
		}
	}
	switch {
	case own.token != 0:
		l.path, l.token = l.parent+"/"+own.name, own.token
	case !l.shared && last.name == "" && l.token == 0:
		l.token = uint64(pzxid)
	}
	return last.name, true
}

// look returns the node that is before ours, if there is one. It also looks at our own: somebody
// may have removed it.
func (l *lease) look(ctx context.Context) (before string, err error) {
	if l.shared {
		v, before, err := l.lookShared(ctx)
		if err != nil {
			return "", err
		}
		return l.agree(ctx, v, before)
	}
	v, err := l.view(ctx)
	ok := false
	if err == nil {
		before, ok = l.seen(inQueue(v.children), v.pzxid)
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

// confirm has the session of one that is granted the lock last long enough to begin a hold.
func (l *lease) confirm(ctx context.Context) error {
	s := l.session
	s.watches.forget(&l.awaits)
	err := s.refresh(ctx, l.state().path, time.Time{})
	if errors.Is(err, zk.ErrNoNode) {
		return l.removed()
	}
	return err
}
