package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// kind is what the answer to a call proves of the session. The zero one proves nothing: a server answers that by itself.
type kind int

const (
	reads  kind = 1 << iota // a server knows the session, perhaps one that the others have left: that answers a sync, too
	writes                  // a quorum does

	// loosely makes the call for what is to be removed, whether or not the session has ended for us: on the application's
	// connection it may go on, or another may have taken its place.
	loosely
)

// connected waits until requests can be sent on the session. What stands in the library's queue is sent whenever there is a server
// again, perhaps on another session: so nothing goes there while there is no connection.
func (s *session) connected(ctx context.Context, k kind) error {
	loose := k&loosely != 0 && s.own == nil
	for {
		changed := s.changes.next()
		if !loose && !s.lasts() {
			s.End()
			return errSessionEnded
		}
		if s.conn.State() == zk.StateHasSession {
			return nil
		}
		s.driver.poll()
		over := s.Context().Done()
		if loose {
			over = nil
		}
		select {
		case <-changed:
		case <-over:
			return errSessionEnded
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ripe returns when the youngest contact was sent that a request proves which is sent at now.
func (s *session) ripe(now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life.ripe(now)
}

// heard takes in the outcome of a request that was sent at sent, when ripe was. It was made on this
// session if the connection still has that: it never comes back to one.
func (s *session) heard(k kind, sent, ripe time.Time, err error) error {
	switch {
	case errors.Is(err, zk.ErrSessionExpired), s.conn.SessionID() != s.id:
		s.End()
		return ended(err)
	case err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNoAuth):
		return err
	case s.Ended():
		return errSessionEnded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k&writes != 0 { // also one that failed: a quorum has agreed that it does
		s.life.prove(ripe)
	}
	if k&(reads|writes) != 0 {
		s.life.contact(sent, clock.Now())
	}
	return err
}

func ended(err error) error {
	if err == nil || errors.Is(err, errSessionEnded) {
		return errSessionEnded
	}
	return fmt.Errorf("%w: %w", errSessionEnded, err)
}

// view is the children of a lock's node, and when they last changed.
type view struct {
	children []string
	pzxid    int64
}

func readView(conn *zk.Conn, parent string) (view, error) {
	children, stat, err := conn.Children(parent)
	if err != nil {
		return view{}, err
	}
	return view{children, stat.Pzxid}, nil
}

// view returns the children of parent that the server knows.
func (s *session) view(ctx context.Context, k kind, parent string) (view, error) {
	return call(ctx, s, k, func(conn *zk.Conn) (view, error) { return readView(conn, parent) })
}

// latest returns the children of parent when the leader was asked, or later: a follower may be behind.
func (s *session) latest(ctx context.Context, k kind, parent string) (view, error) {
	return call(ctx, s, k, func(conn *zk.Conn) (view, error) {
		if _, err := conn.Sync(parent); err != nil {
			return view{}, err
		}
		return readView(conn, parent)
	})
}

// check has a quorum agree that the nodes exist. It changes nothing, and wakes nobody.
func (s *session) check(ctx context.Context, nodes ...string) ([]zk.MultiResponse, error) {
	ops := make([]any, len(nodes))
	for i, node := range nodes {
		ops[i] = &zk.CheckVersionRequest{Path: node, Version: -1}
	}
	return call(ctx, s, writes, func(conn *zk.Conn) ([]zk.MultiResponse, error) { return conn.Multi(ops...) })
}

// prove has a quorum agree that the session is there. Whether the root is, and may be read, does not matter: a quorum also agrees
// that a request fails.
func (s *session) prove(ctx context.Context) error {
	_, err := s.check(ctx, s.driver.root())
	if errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNoAuth) {
		return nil
	}
	return err
}

// touch is a request that costs nobody anything.
func (s *session) touch(ctx context.Context) error {
	_, err := call(ctx, s, reads, func(conn *zk.Conn) (bool, error) {
		found, _, err := conn.Exists(s.driver.root())
		return found, err
	})
	return err
}

// makeParents makes the node of a lock, and those above it that are missing. They are containers, which the
// servers remove when they are empty, at any time.
func (s *session) makeParents(ctx context.Context, node string) error {
	_, err := call(ctx, s, writes, func(conn *zk.Conn) (string, error) { return s.makeContainer(conn, node) })
	switch {
	case errors.Is(err, zk.ErrNoNode) && path.Dir(node) != "/":
		return s.makeParents(ctx, path.Dir(node)) // and then the caller comes again
	case err == nil, errors.Is(err, zk.ErrNodeExists):
		return nil
	case err.Error() == "unknown error: -6":
		return fmt.Errorf("%w: this ZooKeeper has no containers: use version %d.%d or later", driver.ErrUnsupported, oldestMajor, oldestMinor)
	default:
		return fmt.Errorf("making %s: %w", node, err)
	}
}
