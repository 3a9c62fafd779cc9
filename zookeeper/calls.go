package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// The library's calls take no context, and block while there is no connection. So each has a goroutine, which
// its caller may leave, and none is made while there is nobody to send it to: what stands in the library's
// queue is sent whenever there is a server again, be it on another session.

// kind is what the answer to a call says of the session.
type kind int

const (
	greets kind = iota // nothing: a server answers by itself, and its session does not live the longer for that
	reads              // a server knows it, and be it one that the others have left: that answers a sync, too
	writes             // a quorum does
)

// call has f make a request on the session, and returns when ctx ends if f has not.
func call[T any](ctx context.Context, s *session, k kind, f func(*zk.Conn) (T, error)) (T, error) {
	var zero T
	if err := s.connected(ctx); err != nil {
		return zero, err
	}
	return run(ctx, s, func() (T, error) {
		sent := clock.Now()
		value, err := f(s.conn)
		return value, s.heard(k, sent, err)
	})
}

// connected waits until requests can be sent on the session.
func (s *session) connected(ctx context.Context) error {
	for {
		changed := s.changes.next()
		switch {
		case s.Ended():
			return errSessionEnded
		case s.replaced():
			s.End()
			return errSessionEnded
		case s.conn.SessionID() != 0 && s.conn.State() == zk.StateHasSession:
			return nil
		}
		if err := s.await(ctx, changed, s.Context().Done()); err != nil {
			return err
		}
	}
}

// loose is call for what is to be removed whether or not the session has ended for us: on the application's connection
// it may go on, or another may have taken its place.
func loose[T any](ctx context.Context, s *session, k kind, f func(*zk.Conn) (T, error)) (T, error) {
	var over <-chan struct{}
	if s.own != nil {
		over = s.Context().Done()
	}
	for {
		changed := s.changes.next()
		if s.conn.State() == zk.StateHasSession {
			break
		}
		if err := s.await(ctx, changed, over); err != nil {
			var zero T
			return zero, err
		}
	}
	return run(ctx, s, func() (T, error) {
		sent := clock.Now()
		value, err := f(s.conn)
		_ = s.heard(k, sent, err)
		if s.own != nil && errors.Is(err, zk.ErrSessionExpired) {
			err = ended(err)
		}
		return value, err
	})
}

// heard takes in the outcome of a request that was sent at sent. It was made on this session if the connection still has
// that: it never comes back to one.
func (s *session) heard(k kind, sent time.Time, err error) error {
	id := s.conn.SessionID()
	switch {
	case errors.Is(err, zk.ErrSessionExpired), id != s.id && id != 0:
		s.End()
		return ended(err)
	case id != s.id, err != nil && !errors.Is(err, zk.ErrNoNode) && !errors.Is(err, zk.ErrNoAuth):
		return err
	case s.Ended():
		return errSessionEnded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if k == writes { // also one that failed: a quorum has agreed that it does
		s.life.prove(sent)
	}
	if k != greets {
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

func (s *session) children(ctx context.Context, parent string) (view, error) {
	return call(ctx, s, reads, func(conn *zk.Conn) (view, error) { return readView(conn, parent) })
}

func readView(conn *zk.Conn, parent string) (view, error) {
	children, stat, err := conn.Children(parent)
	if err != nil {
		return view{}, err
	}
	return view{children, stat.Pzxid}, nil
}

// check has a quorum agree that the nodes exist. It changes nothing, and wakes nobody.
func (s *session) check(ctx context.Context, nodes ...string) ([]zk.MultiResponse, error) {
	ops := make([]any, len(nodes))
	for i, node := range nodes {
		ops[i] = &zk.CheckVersionRequest{Path: node, Version: -1}
	}
	return call(ctx, s, writes, func(conn *zk.Conn) ([]zk.MultiResponse, error) { return conn.Multi(ops...) })
}

// prove has a quorum agree that the session is there. Whether the node is that it asks for, and may be read, does not matter:
// what a quorum agrees on may also be that a request fails.
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
	case errors.Is(err, zk.ErrNoNode) && up(node) != "":
		return s.makeParents(ctx, up(node)) // and then the caller comes again
	case err == nil, errors.Is(err, zk.ErrNodeExists):
		return nil
	case err.Error() == "unknown error: -6":
		return fmt.Errorf("%w: this ZooKeeper has no containers: use version %d.%d or later", driver.ErrUnsupported, oldestMajor, oldestMinor)
	default:
		return fmt.Errorf("making %s: %w", node, err)
	}
}
