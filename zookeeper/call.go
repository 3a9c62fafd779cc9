package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/noanswer"
)

var (
	// errSessionEnded: the session has expired, or may have, and all its ephemeral nodes with it.
	errSessionEnded = errors.New("the ZooKeeper session ended")

	// errRemoved: the session lasts, and our node is not there.
	errRemoved = errors.New("somebody removed our node from the queue")

	// errNoAnswer: the outcome of a request is unknown.
	errNoAnswer = error(noanswer.Error("ZooKeeper has not answered in time"))

	// errUnreachable: there was no connection to any server.
	errUnreachable = errors.New("no ZooKeeper server is connected")
)

func isAny(err error, of ...error) bool {
	return slices.ContainsFunc(of, func(e error) bool { return errors.Is(err, e) })
}

// asLost returns err for the holder of a lease.
func asLost(err error) error {
	if errors.Is(err, errSessionEnded) {
		return fmt.Errorf("%w: %w", driver.ErrLost, err)
	}
	return err
}

// effect is what a reply tells of the session, see heartbeat.go.
type effect int

const (
	nothing effect = iota // the server answers without looking at the session
	reads                 // a heartbeat: one server knows the session, maybe a partitioned one, also for a sync
	writes                // a heartbeat, and a quorum write
)

// call has f make a request on the session once there is a connection, and a second time if that
// breaks: the library notices a broken connection only by using it. f runs in a goroutine, which call
// abandons when ctx ends: calls of the library take no context (go-zookeeper/zk#12).
func call[T any](ctx context.Context, s *session, e effect, f func(*zk.Conn) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	var last answer
	for range 2 {
		if err := s.connected(ctx); err != nil {
			return last.value, err
		}
		answers := make(chan answer, 1)
		err := s.driver.spawn(func() {
			var a answer
			a.err = s.request(e, func() (err error) {
				a.value, err = f(s.conn)
				return err
			})
			answers <- a
		})
		if err != nil {
			return last.value, err
		}
		select {
		case last = <-answers:
		case <-ctx.Done():
			return last.value, s.noAnswer(ctx)
		}
		if !errors.Is(last.err, zk.ErrConnectionClosed) {
			break
		}
	}
	return last.value, last.err
}

// started waits until the session has started, and returns the error of that.
func (s *session) started(ctx context.Context) error {
	err := s.Wait(ctx)
	if err != nil && err == ctx.Err() { //nolint:errorlint // another one has more to say
		return s.noAnswer(ctx)
	}
	return err
}

// connected waits until requests can be sent on the session. The library sends what is in its queue
// as soon as there is a server again, perhaps on another session: so nothing is queued there without
// a connection.
func (s *session) connected(ctx context.Context) error {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		switch {
		case !s.lasts():
			s.End()
			return errSessionEnded
		case s.conn.State() == zk.StateHasSession:
			return nil
		}
		select {
		case <-changed:
		case <-s.Context().Done():
			return errSessionEnded
		case <-ctx.Done():
			return s.noAnswer(ctx)
		}
	}
}

// lasts reports whether the session has not ended, and the connection still has it: the library
// begins another one by itself (go-zookeeper/zk#159).
func (s *session) lasts() bool { return !s.Ended() && s.conn.SessionID() == s.id }

// noAnswer returns the error of a ctx that has ended, with what is wrong with the connection.
func (s *session) noAnswer(ctx context.Context) error {
	if err := s.network.lastError(); err != nil {
		return fmt.Errorf("%w: %w", err, ctx.Err())
	}
	return ctx.Err()
}

// request has f make a request, and records the reply. The request was of this session if the
// connection still has that afterwards: it never returns to an earlier one.
func (s *session) request(e effect, f func() error) error {
	sent := clock.Now()
	s.mu.Lock()
	confirms := s.heartbeats.latestConfirmable(sent)
	s.mu.Unlock()
	err := f()
	switch {
	case errors.Is(err, zk.ErrSessionExpired), s.conn.SessionID() != s.id:
		s.End()
		return errSessionEnded
	case err != nil && !isAny(err, zk.ErrNoNode, zk.ErrNoAuth): // which are replies
		return err
	case s.Ended():
		return errSessionEnded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e == writes { // a quorum has also agreed that a write fails
		s.heartbeats.confirm(confirms)
	}
	if e != nothing {
		s.heartbeats.record(sent, clock.Now(), s.heartbeats.delay)
	}
	return err
}

// multi makes changes in one transaction.
func (s *session) multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return call(ctx, s, writes, func(conn *zk.Conn) ([]zk.MultiResponse, error) { return conn.Multi(ops...) })
}

// check has a quorum agree that the nodes exist. It changes nothing, and fires no watch.
func (s *session) check(ctx context.Context, nodes ...string) ([]zk.MultiResponse, error) {
	ops := make([]any, len(nodes))
	for i, node := range nodes {
		ops[i] = checkExists(node)
	}
	return s.multi(ctx, ops...)
}

func checkExists(node string) *zk.CheckVersionRequest {
	return &zk.CheckVersionRequest{Path: node, Version: -1}
}

// confirm makes a quorum write. Whether the root exists, and may be read, does not matter: a quorum
// also agrees that a request fails.
func (s *session) confirm(ctx context.Context) error {
	_, err := s.check(ctx, s.driver.root())
	if isAny(err, zk.ErrNoNode, zk.ErrNoAuth) {
		return nil
	}
	return err
}

// exist reports which of the nodes the server knows. No other server takes part.
func (s *session) exist(ctx context.Context, nodes ...string) ([]bool, error) {
	return call(ctx, s, reads, func(conn *zk.Conn) (there []bool, err error) {
		there = make([]bool, len(nodes))
		for i, node := range nodes {
			if there[i], _, err = conn.Exists(node); err != nil {
				break
			}
		}
		return there, err
	})
}
