package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
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
//	begin     none has: it begins a phase with the parent's pzxid as its token: move, in the same
//	          transaction in which the parent's data are rewritten if their version is still that
//	          of the reply with the queue
//	move      delete our node, and create one with the same number, whose owner is settledMark and
//	          the token. The place in the queue stays
//
// Invariants. (1) One token at a time: of two shares that begin, the later transaction fails, since
// the first has raised the version; it reads again, and adopts. (2) Tokens increase: see
// docs/evidence/protocols.md. (3) A writer waits for every share before it, settled or not.
//
// Lost reply to move: the node is under the old name or the new one, with the token in it. The
// next read of the queue may be of before the move, by a server that is behind, and have another
// pzxid: then one more name is possible. moved looks for exactly those names (numbers begin anew
// with the parent, so a number alone may be another share's).
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

// settleToken settles the token of a share without a predecessor. v is the queue in which there was
// none. Of the shares that have read it together one begins a phase, and the others read again. It
// returns the predecessor, if one is found after all.
func (l *lease) settleToken(ctx context.Context, v *queueView, before string) (_ string, err error) {
	for l.shared && before == "" && l.state().token == 0 {
		switch witness, ok := parseContender(l.state().witness); {
		case ok:
			err = l.move(ctx, witness.Token, checkExists(l.parent+"/"+witness.ID))
			v = nil
		case v == nil:
			v, before, err = l.look(ctx)
		case v.begun.CompareAndSwap(false, true):
			err = l.beginPhase(ctx, v)
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
		// The witness has ended, or a phase has begun.
		if isAny(err, zk.ErrNoNode, zk.ErrBadVersion) {
			l.mu.Lock()
			l.witness, err = "", nil
			l.mu.Unlock()
		}
		if err != nil {
			return "", err
		}
	}
	return before, nil
}

// beginPhase settles our token as the pzxid of v, unless a phase has begun since v was read.
// Whoever begins one rewrites the parent's data, and so raises their version.
func (l *lease) beginPhase(ctx context.Context, v *queueView) error {
	data, err := call(ctx, l.session, reads, func(conn *zk.Conn) (data []byte, err error) {
		data, _, err = conn.Get(l.parent)
		return data, err
	})
	if err != nil {
		return err
	}
	return l.move(ctx, uint64(v.pzxid), &zk.SetDataRequest{Path: l.parent, Data: data, Version: v.version})
}

// move renames our node to that of a share with the token, if the conditions hold.
func (l *lease) move(ctx context.Context, token uint64, conditions ...any) error {
	l.mu.Lock()
	from := l.path
	own, _ := parseContender(path.Base(from))
	to := fmt.Sprintf("%s%010d", nodeOf(l.parent, settledOwner(token)), own.number)
	if !slices.Contains(l.to, to) {
		l.to = append(l.to, to)
	}
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
	elsewhere := slices.DeleteFunc(slices.Clone(now.to), func(to string) bool { return to == from })
	if now.path != from || len(elsewhere) == 0 {
		return now.path != from, nil
	}
	at, err := synced(ctx, l.lock, func(conn *zk.Conn) (at string, err error) {
		for _, to := range elsewhere {
			if there, _, err := conn.Exists(to); there || err != nil {
				return to, err
			}
		}
		return "", nil
	})
	if err != nil || at == "" {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.path, l.deletes = at, 0
	return true, nil
}

// downgrade makes the lease a share.
func (l *lease) downgrade(ctx context.Context) error {
	now := l.state()
	if now.finished || now.path == "" {
		return driver.ErrLost
	}
	if own, _ := parseContender(path.Base(now.path)); own.Shared {
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

// queueView is the result of one read of the queue, by a writer, or for all shares of a session
// that came together. Many come at once when a writer leaves: otherwise each would read the whole
// queue, and try to begin a phase.
type queueView struct {
	view
	queue []contender
	err   error
	done  chan struct{} // closed when it was read

	begun atomic.Bool   // one of the shares tries to begin a phase
	over  chan struct{} // closed after that
}

// sharedViews has the next views to read for a session's shares, by parent. A nil view means that a
// read is in flight, and that nobody has come since.
type sharedViews struct {
	mu   sync.Mutex
	next map[string]*queueView
}

// read reads the queue.
func (l *lease) read(ctx context.Context) (*queueView, error) {
	if l.shared {
		return l.readTogether(ctx)
	}
	seen, err := l.view(ctx)
	return &queueView{view: seen, queue: inQueue(seen.children)}, err
}

// readTogether reads the queue, once for all shares of the session that come while a read is in
// flight. None gets a read that began before it came.
func (k lock) readTogether(ctx context.Context) (*queueView, error) {
	views := &k.session.sharedViews
	views.mu.Lock()
	v, reading := views.next[k.parent]
	if v == nil {
		v = &queueView{done: make(chan struct{}), over: make(chan struct{})}
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

// serveShared reads views until no share waits for another.
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
		v.view, v.err = k.view(ctx)
		v.queue = inQueue(v.children)
		switch {
		case s.Ended():
			v.err = errSessionEnded
		case v.err != nil && errors.Is(v.err, ctx.Err()): // which is not the caller's
			v.err = errNoAnswer
		}
		cancel()
		close(v.done)
	}
}
