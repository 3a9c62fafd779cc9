package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
)

// lock is the node of one lock, as a session sees it. Who stands in its queue is a child of it.
type lock struct {
	session *session
	parent  string // the node's path
}

// view is the children of a lock's node, when they last changed, and the version of its data.
type view struct {
	children []string
	pzxid    int64
	version  int32
}

func readView(conn *zk.Conn, parent string) (view, error) {
	children, stat, err := conn.Children(parent)
	if err != nil {
		return view{}, err
	}
	return view{children, stat.Pzxid, stat.Version}, nil
}

// view returns the children that the server knows.
func (k lock) view(ctx context.Context) (view, error) {
	return call(ctx, k.session, reads, func(conn *zk.Conn) (view, error) { return readView(conn, k.parent) })
}

// latest returns the children when the leader was asked, or later.
func (k lock) latest(ctx context.Context) (view, error) {
	return synced(ctx, k, func(conn *zk.Conn) (view, error) { return readView(conn, k.parent) })
}

// synced has f read when the server has caught up with its leader: a follower may be behind.
func synced[T any](ctx context.Context, k lock, f func(*zk.Conn) (T, error)) (T, error) {
	return call(ctx, k.session, reads, func(conn *zk.Conn) (v T, err error) {
		if _, err = conn.Sync(k.parent); err != nil {
			return v, err
		}
		return f(conn)
	})
}

// refuseHeld returns the error of a lock that is another's before we make a node, which others
// would take for that of one who waits. The server may be behind its leader: that a lock is held
// counts when it has caught up.
func (k lock) refuseHeld(ctx context.Context, shared bool) error {
	first := ""
	for _, read := range []func(context.Context) (view, error){k.view, k.latest} {
		seen, err := read(ctx)
		queue := inQueue(seen.children)
		switch {
		case errors.Is(err, zk.ErrNoNode):
			return nil
		case err != nil:
			return err
		case !slices.ContainsFunc(queue, func(c contender) bool { return !shared || !c.Shared }):
			return nil
		}
		first = slices.MinFunc(queue, compare).ID
	}
	return heldBy(first)
}

// heldBy returns the error of a lock that is another's.
func heldBy(first string) error {
	return &driver.HeldError{Holder: driver.Participant{ID: first}}
}

// createNodes makes a node that is missing, and those above it. They are containers, which the
// servers remove when they are empty, at any time.
func (k lock) createNodes(ctx context.Context, node string) error {
	_, err := call(ctx, k.session, writes, func(*zk.Conn) (string, error) { return k.session.network.createContainer(node) })
	switch {
	case errors.Is(err, zk.ErrNoNode) && path.Dir(node) != "/":
		return k.createNodes(ctx, path.Dir(node)) // and then the caller comes again
	case err == nil, errors.Is(err, zk.ErrNodeExists):
		return nil
	case err.Error() == "unknown error: -6":
		return fmt.Errorf("%w: this ZooKeeper has no containers: use version %d.%d or later", driver.ErrUnsupported, oldestMajor, oldestMinor)
	default:
		return fmt.Errorf("making %s: %w", node, err)
	}
}

// checkNumbers returns an error while a node, in which somebody was refused for its number, is the
// same: another child would keep the servers from removing it.
func (k lock) checkNumbers(ctx context.Context) error {
	exhausted := &k.session.driver.exhausted
	if _, ok := exhausted.Load(k.parent); !ok {
		return nil
	}
	next, err := call(ctx, k.session, reads, func(conn *zk.Conn) (uint32, error) {
		found, stat, err := conn.Exists(k.parent)
		if err != nil || !found {
			return 0, err
		}
		// The number of the next child is how many were ever made. A stat counts those that were
		// deleted, too (DataNode.copyStat).
		return uint32(stat.Cversion+stat.NumChildren) / 2, nil
	})
	if err == nil && next > lastNumber {
		err = fmt.Errorf("%s: %w", k.parent, errNumbered)
	}
	if err == nil {
		exhausted.Delete(k.parent)
	}
	return err
}

// errNumbered: there are no numbers left. They begin anew with the node.
var errNumbered = errors.New("the servers number children up to 2147483647, and here they are near that: wait until the queue is " +
	"empty and the servers have removed the node, which takes them a minute; if it stays, it is no container or has other children: delete it")

// nodesPerCheck is how many nodes are looked at in one request, or at once: a server takes 1 MB by
// default.
const nodesPerCheck = 100

// each calls f for 0 to n-1 at the same time, and returns an error of those, if there is one but
// that a node is gone.
func each(n int, f func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = f(i) })
	}
	all.Wait()
	for _, err := range errs {
		if err != nil && !errors.Is(err, zk.ErrNoNode) {
			return err
		}
	}
	return nil
}
