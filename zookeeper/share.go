package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
)

// The owner of a share begins with a mark of eight bytes: by chance another's does in one of 2^64
// cases. When the token of a share is settled it moves to a node with the same number, whose owner
// has the token, in place of eight random bytes.
const (
	waitingMark = "7d3c9f0a51e8b264"
	settledMark = "7d3c9f0a51e8b265"
)

func settledOwner(token uint64) string { return fmt.Sprintf("%s%016x", settledMark, token) }

// parseShare returns what an owner says of a share.
func parseShare(owner string) (shared bool, token uint64) {
	if digits, ok := strings.CutPrefix(owner, settledMark); ok {
		token, _ = strconv.ParseUint(digits, 16, 64)
		return true, token
	}
	return strings.HasPrefix(owner, waitingMark), 0
}

// own returns our contender of queue. Its number alone does not tell: the numbers of a lock begin
// anew with its node.
func (l *lease) own(queue []contender) (own contender, ok bool) {
	now := l.state()
	i := slices.IndexFunc(queue, func(c contender) bool { return c.name == path.Base(now.path) || c.name == path.Base(now.to) })
	if i < 0 {
		return own, false
	}
	return queue[i], true
}

// seenShared returns the last writer's node before ours in the queue, and whether ours is there.
func (l *lease) seenShared(queue []contender) (before string, ok bool) {
	own, ok := l.own(queue)
	if !ok {
		return "", false
	}
	l.witness = ""
	var writer contender
	for _, c := range queue {
		switch {
		case c.shared && c.token != 0:
			l.witness = c.name
		case !c.shared && compare(c, own) < 0 && (writer.name == "" || compare(c, writer) > 0):
			writer = c
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.holder = slices.MinFunc(queue, compare).name; own.token != 0 {
		l.path, l.token = l.parent+"/"+own.name, own.token
	}
	return writer.name, true
}

// lookShared reads the queue with the others of our session who want to, and returns the last
// writer's node before ours, too.
func (l *lease) lookShared(ctx context.Context) (v *sharedView, before string, err error) {
	ok := false
	if v, err = l.lookTogether(ctx); err == nil {
		before, ok = l.seenShared(v.queue)
	}
	if errors.Is(err, zk.ErrNoNode) || err == nil && !ok {
		err = l.removed()
	}
	return v, before, err
}

// agree gives a share, before which no writer stands, the token of the others: that of one whose
// token is settled, and which is there in the step in which ours is. If there is none the token is
// the parent's pzxid, and the step fails if another has begun so since we have read the parent's
// version, before its children. Of one session one share does so at a time: the others see it then.
// It returns the writer that is before ours.
func (l *lease) agree(ctx context.Context, before string) (_ string, err error) {
	phases := &l.session.phases
	for l.shared && before == "" && l.state().token == 0 {
		name := cmp.Or(phases.settled(l.parent), l.witness)
		witness, ok := parseContender(name)
		if ok {
			err = l.settleAs(ctx, witness.token, checkExists(l.parent+"/"+name))
		} else {
			err = l.begin(ctx, func() error {
				v, before, err := l.lookShared(ctx)
				if err != nil || before != "" || l.state().token != 0 || l.witness != "" {
					return err
				}
				return l.settleAs(ctx, uint64(v.pzxid), v.begin)
			})
		}
		if err != nil || l.state().token != 0 {
			return "", err
		}
		if ok {
			phases.unsettle(l.parent, name) // it has ended, or ours has
		}
		if _, before, err = l.lookShared(ctx); err != nil {
			return "", err
		}
	}
	return before, nil
}

// settleAs settles our token if the condition holds.
func (l *lease) settleAs(ctx context.Context, token uint64, condition any) error {
	err := l.move(ctx, token, condition)
	if isAny(err, zk.ErrNoNode, zk.ErrBadVersion) {
		l.witness = ""
		return nil
	}
	return err
}

// move gives our node, in one step, the name of a share with the token. The number, and so the
// place in the queue, stays.
func (l *lease) move(ctx context.Context, token uint64, conditions ...any) error {
	l.mu.Lock()
	from := l.path
	own, _ := parseContender(path.Base(from))
	to := fmt.Sprintf("%s%010d", nodeOf(l.parent, settledOwner(token)), own.number)
	l.to = to
	l.mu.Unlock()
	if from == to {
		return nil // another call has found it there
	}
	_, err := l.session.multi(ctx, append(conditions,
		&zk.DeleteRequest{Path: from, Version: -1},
		&zk.CreateRequest{Path: to, Data: l.data, Acl: l.session.driver.acl, Flags: zk.FlagEphemeral})...)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.path, l.token, l.asked = to, token, 0
		l.session.phases.settle(l.parent, path.Base(to))
	}
	return err
}

// moved reports whether a move has brought our node away from the path from, at which a request has
// not found it. The answer to that move may have been lost, or have come since the request was made.
func (l *lease) moved(ctx context.Context, from string) (bool, error) {
	now := l.state()
	if now.path != from || now.to == "" || now.to == from {
		return now.path != from, nil
	}
	there, err := call(ctx, l.session, reads, func(conn *zk.Conn) (there bool, err error) {
		if _, err = conn.Sync(l.parent); err == nil {
			there, _, err = conn.Exists(now.to)
		}
		return there, err
	})
	if err != nil || !there {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.path, l.asked = now.to, 0
	return true, nil
}

// downgrade makes the lease a share.
func (l *lease) downgrade(ctx context.Context) error {
	now := l.state()
	if now.finished || now.path == "" {
		return driver.ErrLost
	}
	if own, _ := parseContender(path.Base(now.path)); own.shared {
		return nil
	}
	err := l.move(ctx, now.token)
	if errors.Is(err, zk.ErrNoNode) {
		moved := false
		if moved, err = l.moved(ctx, now.path); err == nil && !moved {
			return driver.ErrLost
		}
	}
	return asLost(err)
}
