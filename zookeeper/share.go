package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"path"
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

// lookShared reads the queue with the others of our session who want to, and returns the last
// writer's node before ours, too.
func (l *lease) lookShared(ctx context.Context) (v *sharedView, before string, err error) {
	ok := false
	if v, err = l.lookTogether(ctx); err == nil {
		before, ok = l.seen(v.queue, v.pzxid)
	}
	if errors.Is(err, zk.ErrNoNode) || err == nil && !ok {
		err = l.removed()
	}
	return v, before, err
}

// agree gives a share, before which no writer stands, the token of the others: that of one whose
// token is settled, and which is there in the step in which ours is. If there is none the token is
// the parent's pzxid, and the step fails if another has begun so since we have read the parent's
// version, before its children. v is that read, or nil. Of those who have read the same one tries:
// the others see it then. It returns the writer that is before ours.
func (l *lease) agree(ctx context.Context, v *sharedView, before string) (_ string, err error) {
	for l.shared && before == "" && l.state().token == 0 {
		switch witness, ok := parseContender(l.state().witness); {
		case ok:
			err = l.settleAs(ctx, witness.token, checkExists(l.parent+"/"+witness.name))
			v = nil
		case v == nil:
			v, before, err = l.lookShared(ctx)
		case v.begun.CompareAndSwap(false, true):
			err = l.settleAs(ctx, uint64(v.pzxid), v.begin)
			close(v.over)
			v = nil
		default:
			select {
			case <-v.over:
				v = nil
			case <-ctx.Done():
				err = l.session.noAnswer(ctx)
			}
		}
		if err != nil {
			return "", err
		}
	}
	return before, nil
}

// settleAs settles our token if the condition holds. Else it is as if nothing had been read.
func (l *lease) settleAs(ctx context.Context, token uint64, condition any) error {
	err := l.move(ctx, token, condition)
	if isAny(err, zk.ErrNoNode, zk.ErrBadVersion) {
		l.mu.Lock()
		defer l.mu.Unlock()
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
	}
	return err
}

// moved reports whether a move has brought our node away from the path from, at which a request has
// not found it. The answer to that move may have been lost, or have come since the request was
// made.
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
