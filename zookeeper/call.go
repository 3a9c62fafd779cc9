package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/internal/clock"
)

// proof is what the answer to a request proves of the session.
type proof int

const (
	nothing proof = iota // a server answers that by itself
	reads                // a server knows the session, perhaps one that the others have left: that answers a sync, too
	writes               // a quorum does
)

// call has f make a request on the session, when there is a connection, and once more if that broke
// meanwhile, perhaps when nobody looked. f runs in a goroutine, which call leaves when ctx ends:
// calls of the library take no context (go-zookeeper/zk#12).
func call[T any](ctx context.Context, s *session, p proof, f func(*zk.Conn) (T, error)) (T, error) {
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
			sent := clock.Now()
			ripe := s.ripe(sent)
			value, err := f(s.conn)
			answers <- answer{value, s.onReply(p, sent, ripe, err)}
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

// connected waits until requests can be sent on the session. What stands in the library's queue is
// sent whenever there is a server again, perhaps on another session: so nothing goes there while
// there is no connection.
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

// noAnswer returns the error of a ctx that has ended, and what is wrong with the connection.
func (s *session) noAnswer(ctx context.Context) error {
	if why := s.network.why(); why != nil {
		return fmt.Errorf("%w: %w", why, ctx.Err())
	}
	return ctx.Err()
}

// ripe returns when the youngest contact was sent that a request proves which is sent at now.
func (s *session) ripe(now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life.ripe(now)
}

// onReply takes in the outcome of a request that was sent at sent, when ripe was. It was made on
// this session if the connection still has that: it never comes back to one.
func (s *session) onReply(p proof, sent, ripe time.Time, err error) error {
	switch {
	case errors.Is(err, zk.ErrSessionExpired), s.conn.SessionID() != s.id:
		s.End()
		return errSessionEnded
	case err != nil && !isAny(err, zk.ErrNoNode, zk.ErrNoAuth):
		return err
	case s.Ended():
		return errSessionEnded
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p == writes { // also one that failed: a quorum has agreed that it does
		s.life.prove(ripe)
	}
	if p != nothing {
		s.life.contact(sent, clock.Now(), s.life.tick)
	}
	return err
}

// multi makes changes in one step.
func (s *session) multi(ctx context.Context, ops ...any) ([]zk.MultiResponse, error) {
	return call(ctx, s, writes, func(conn *zk.Conn) ([]zk.MultiResponse, error) { return conn.Multi(ops...) })
}

// check has a quorum agree that the nodes exist. It changes nothing, and wakes nobody.
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

// prove has a quorum agree that the session is there. Whether the root is, and may be read, does
// not matter: a quorum also agrees that a request fails.
func (s *session) prove(ctx context.Context) error {
	_, err := s.check(ctx, s.driver.root())
	if isAny(err, zk.ErrNoNode, zk.ErrNoAuth) {
		return nil
	}
	return err
}

// exist reports which of the nodes the server knows. It costs nobody anything.
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
