package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/outage"
)

// The owner of a share begins with a mark of eight bytes: by chance another's does in one of 2^64 cases. When the token of a share is settled it moves to
// a node with the same number, whose owner has the token, in place of eight random bytes.
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

// id returns what no other contender for the name has: owners of shares are alike.
func (c contender) id() string { return fmt.Sprintf("%s-%d", c.owner, c.number) }

// AcquireShared implements driver.Sharer.
func (d *Driver) AcquireShared(ctx context.Context, req driver.Request) (driver.Lease, error) {
	return d.try(ctx, req, taking{shared: true})
}

// AcquireSharedQueued implements driver.Sharer. A share waits for the last writer before it, and begins again like AcquireQueued.
func (d *Driver) AcquireSharedQueued(ctx context.Context, req driver.Request, answered func(error)) (driver.Lease, error) {
	return d.acquire(ctx, req, d.outage(req.TTL, answered), taking{wait: true, shared: true})
}

// share makes a contender that has no node yet one for a share.
func (l *lease) share() {
	l.shared = true
	l.owner = waitingMark + l.owner[len(waitingMark):]
	l.node = l.parent + "/" + nodePrefix + l.owner + nodeMiddle
}

// own returns our contender of queue. Its number alone does not tell: the numbers of a lock begin anew with its node.
func (l *lease) own(queue []contender) (own contender, ok bool) {
	l.mu.Lock()
	at, to := path.Base(l.path), path.Base(l.to)
	l.mu.Unlock()
	i := slices.IndexFunc(queue, func(c contender) bool { return c.name == at || c.name == to })
	if i < 0 {
		return own, false
	}
	return queue[i], true
}

// seenShared returns the last writer's node before ours among the children, and whether ours is there.
func (l *lease) seenShared(v view) (before string, ok bool) {
	queue := inQueue(v.children)
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

// agree gives a share, before which no writer stands, the token of the others: that of one whose token is settled, and which is there in the step in
// which ours is. If there is none the token is the parent's pzxid, and the step fails if another has begun so since we have read the parent's
// version, before its children.
func (l *lease) agree(ctx context.Context, o *outage.Outage) error {
	for l.Token() == 0 {
		var condition any
		var token uint64
		if witness, ok := parseContender(l.witness); ok {
			token, condition = witness.token, &zk.CheckVersionRequest{Path: l.parent + "/" + l.witness, Version: -1}
		} else {
			v, begin, err := l.lookToBegin(ctx, o)
			if err != nil {
				return err
			}
			if l.Token() != 0 || l.witness != "" {
				continue
			}
			token, condition = uint64(v.pzxid), begin
		}
		err := o.Ask(ctx, func(ctx context.Context) error { return l.move(ctx, token, condition) })
		if err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrBadVersion) {
			return err
		}
		l.witness = ""
	}
	return nil
}

// beginView is what lookToBegin reads: begin writes the parent's data as they were before the view.
type beginView struct {
	view
	begin *zk.SetDataRequest
}

// lookToBegin reads the queue, and returns the operation that fails if another has begun a phase since.
func (l *lease) lookToBegin(ctx context.Context, o *outage.Outage) (v view, begin *zk.SetDataRequest, err error) {
	var before string
	var ok bool
	err = o.Ask(ctx, func(ctx context.Context) error {
		seen, err := call(ctx, l.session, reads, func(conn *zk.Conn) (seen beginView, err error) {
			data, stat, err := conn.Get(l.parent)
			if err != nil {
				return seen, err
			}
			seen.begin = &zk.SetDataRequest{Path: l.parent, Data: data, Version: stat.Version}
			seen.view, err = readView(conn, l.parent)
			return seen, err
		})
		if v, begin = seen.view, seen.begin; err == nil {
			before, ok = l.seen(v)
		}
		return err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode) || err == nil && !ok:
		return v, nil, l.removed()
	case err == nil && before != "":
		err = clock.Sleep(ctx, outage.Pause(l.session.TTL))
	}
	return v, begin, err
}

// move gives our node, in one step, the name of a share with the token. The number, and so the place in the queue, stays.
func (l *lease) move(ctx context.Context, token uint64, conditions ...any) error {
	l.mu.Lock()
	from, s := l.path, l.session
	own, _ := parseContender(path.Base(from))
	to := fmt.Sprintf("%s/%s%s%s%010d", l.parent, nodePrefix, settledOwner(token), nodeMiddle, own.number)
	l.to = to
	l.mu.Unlock()
	if from == to {
		return nil // another call has found it there
	}
	_, err := call(ctx, s, writes, func(conn *zk.Conn) ([]zk.MultiResponse, error) {
		return conn.Multi(append(conditions,
			&zk.DeleteRequest{Path: from, Version: -1},
			&zk.CreateRequest{Path: to, Data: l.data, Acl: s.driver.acl, Flags: zk.FlagEphemeral})...)
	})
	if err == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.path, l.token, l.asked = to, token, 0
	}
	return err
}

// moved reports whether a move has brought our node away from the path from, at which a request has not found it. The answer to that move may have been
// lost, or have come since the request was made.
func (l *lease) moved(ctx context.Context, from string) (bool, error) {
	l.mu.Lock()
	at, to := l.path, l.to
	l.mu.Unlock()
	if at != from || to == "" || to == from {
		return at != from, nil
	}
	there, err := call(ctx, l.session, reads|loosely, func(conn *zk.Conn) (there bool, err error) {
		if _, err = conn.Sync(l.parent); err == nil {
			there, _, err = conn.Exists(to)
		}
		return there, err
	})
	if err != nil || !there {
		return false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.path, l.asked = to, 0
	return true, nil
}

// Downgrade implements driver.Downgrader. A share is watched like any other: those who wait for the node hear that it is gone.
func (l *lease) Downgrade(ctx context.Context) error {
	from := l.at()
	if l.lost() || from == "" {
		return driver.ErrLost
	}
	if own, _ := parseContender(path.Base(from)); own.shared {
		return nil
	}
	o := l.session.driver.outage(l.session.TTL, unheard)
	err := o.Ask(ctx, func(ctx context.Context) error { return l.move(ctx, l.Token()) })
	if errors.Is(err, zk.ErrNoNode) {
		moved := false
		err = o.Ask(ctx, func(ctx context.Context) (err error) {
			moved, err = l.moved(ctx, from)
			return err
		})
		if err == nil && !moved {
			return driver.ErrLost
		}
	}
	return asLost(err)
}
