package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
)

// How a share gets its token, which all shares that hold together have.
//
//	enqueue   as a writer does (queue.go), with waitingMark in the owner; its predecessor is the last
//	          writer's node. Without one, the share settles its token:
//	adopt     another share in the queue has a token: move, in the same transaction in which that
//	          share's node is checked to exist
//	begin     none has: it begins a phase with the parent's pzxid as its token. The parent's version is
//	          read first, then the queue; then move, in the same transaction in which the parent's
//	          data are rewritten if that version is still current
//	move      delete our node, and create one with the same number, whose owner is settledMark and
//	          the token. The place in the queue stays
//
// Invariants. (1) One token at a time: of two shares that begin, the later transaction fails, since
// the first has raised the version; it reads again, and adopts. (2) Tokens increase: see
// docs/evidence/protocols.md. (3) A writer waits for every share before it, settled or not.
//
// Lost reply to move: the node is under the old name or the new one, with the token in it; moved looks
// for exactly that one (numbers begin anew with the parent, and a number may be another share's).
//
// A downgrade is a move by the holder, with its own token.

// The owner of a share begins with a mark of eight bytes; a writer's does by chance in one of 2^64
// cases. settledMark is followed by the token in place of eight random bytes.
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

// readShared reads the queue together with other shares of our session, and returns the last writer's
// node before ours, too.
func (l *lease) readShared(ctx context.Context) (v *sharedView, before string, err error) {
	ok := false
	if v, err = l.readTogether(ctx); err == nil {
		before, ok = l.observe(v.queue, v.pzxid)
	}
	if errors.Is(err, zk.ErrNoNode) || err == nil && !ok {
		err = l.removed()
	}
	return v, before, err
}

// settleToken settles the token of a share without a predecessor. v is the view in which there was
// none, or nil if it has to be read. Of the shares that have the same view one begins a phase, and the
// others read again. It returns the predecessor, if one is found after all.
func (l *lease) settleToken(ctx context.Context, v *sharedView, before string) (_ string, err error) {
	for l.shared && before == "" && l.state().token == 0 {
		switch witness, ok := parseContender(l.state().witness); {
		case ok:
			err = l.tryToken(ctx, witness.token, checkExists(l.parent+"/"+witness.name))
			v = nil
		case v == nil:
			v, before, err = l.readShared(ctx)
		case v.begun.CompareAndSwap(false, true):
			err = l.tryToken(ctx, uint64(v.pzxid), v.begin)
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

// tryToken settles our token if the condition holds. Otherwise the witness counts for nothing.
func (l *lease) tryToken(ctx context.Context, token uint64, condition any) error {
	err := l.move(ctx, token, condition)
	if isAny(err, zk.ErrNoNode, zk.ErrBadVersion) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.witness = ""
		return nil
	}
	return err
}

// move renames our node to that of a share with the token, if the conditions hold.
func (l *lease) move(ctx context.Context, token uint64, conditions ...any) error {
	l.mu.Lock()
	from := l.path
	own, _ := parseContender(path.Base(from))
	to := fmt.Sprintf("%s%010d", nodeOf(l.parent, settledOwner(token)), own.number)
	l.to = to
	l.mu.Unlock()
	if from == to {
		return nil // observe has found it there
	}
	_, err := l.session.multi(ctx, append(conditions,
		&zk.DeleteRequest{Path: from, Version: -1},
		&zk.CreateRequest{Path: to, Data: l.data, Acl: l.session.driver.acl, Flags: zk.FlagEphemeral})...)
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.path, l.token, l.deletes = to, token, 0
	}
	return err
}

// moved reports whether our node was moved away from the path from, where a request has not found it.
// The reply to the move may have been lost, or have come after that request was sent.
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
	l.path, l.deletes = now.to, 0
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

// sharedView is a queue that shares of one session have read together, and the operation that begins
// a phase there. When a writer leaves, all of them come at once: each would read the whole queue, and
// all would begin a phase.
type sharedView struct {
	done  chan struct{} // closed when it was read
	err   error
	queue []contender
	pzxid int64
	begin *zk.SetDataRequest // rewrites the parent's data of before the view: it fails if a phase has begun since

	begun atomic.Bool   // one of the shares tries to begin a phase
	over  chan struct{} // closed after that
}

// sharedViews are those of a session that are to be read next, by parents. A nil one means that a read
// is in flight, and that nobody has come since.
type sharedViews struct {
	mu   sync.Mutex
	next map[string]*sharedView
}

// readTogether reads the queue, once for all shares of the session that come while a read is in
// flight. None gets a read that began before it came.
func (k lock) readTogether(ctx context.Context) (*sharedView, error) {
	views := &k.session.sharedViews
	views.mu.Lock()
	v, reading := views.next[k.parent]
	if v == nil {
		v = &sharedView{done: make(chan struct{}), over: make(chan struct{})}
		views.next[k.parent] = v
	}
	views.mu.Unlock()
	if !reading {
		if err := k.session.driver.spawn(k.serveShared); err != nil {
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

// serveShared reads views until nobody wants another.
func (k lock) serveShared() {
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
