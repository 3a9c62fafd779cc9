package zookeeper

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/internal/clock"
)

// Start makes the session, or finds the one of the application's connection.
func (s *session) Start() error {
	begin, patience := s.connect, s.TTL*3/8
	if s.own == nil {
		begin, patience = s.find, s.driver.dialTimeout
	}
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	err := begin(ctx)
	switch {
	case err == nil:
		s.driver.sessions.Add(s.driver.key(s.TTL), s)
		return nil
	case s.driver.ctx.Err() != nil:
		return errSessionEnded
	case ctx.Err() == nil:
		return err
	}
	if why := s.failure(); why != nil {
		return why
	}
	return errNoAnswer
}

// failure returns what is known to be wrong with the connection.
func (s *session) failure() error {
	switch {
	case s.own != nil:
		return s.own.why()
	case s.driver.conn.State() != zk.StateHasSession:
		return errUnreachable
	default:
		return nil
	}
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// connect makes a session of our own.
func (s *session) connect(ctx context.Context) error {
	d, n := s.driver, s.own
	made := make(chan error, 1)
	var connecting sync.WaitGroup // until s.conn is set
	connecting.Add(1)
	conn, events, err := zk.Connect(d.servers, s.TTL, zk.WithDialer(n.dial), zk.WithHostProvider(n),
		zk.WithLogger(silent{}), zk.WithLogInfo(false),
		zk.WithEventCallback(func(e zk.Event) {
			if e.Type != zk.EventSession {
				s.hear(e)
				return
			}
			connecting.Wait()
			switch e.State {
			case zk.StateHasSession:
				l := n.attached(s.conn)
				timeout, err := negotiated(s.conn)
				if id := s.conn.SessionID(); s.id != 0 {
					s.attached(l, id, timeout)
				} else {
					made <- s.begin(l, id, timeout, err)
				}
			case zk.StateExpired:
				s.End()
			}
			s.changes.raise()
		}))
	if err != nil {
		return err
	}
	s.conn, n.conn, n.events = conn, conn, events
	connecting.Done()
	select {
	case err = <-made:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err == nil {
		err = d.checkVersion(ctx, n)
	}
	if err == nil && d.user != nil {
		err = s.authenticate(ctx)
	}
	return err
}

// begin takes in a session of our own, and the time-out that it was granted. A quorum agrees on a new one.
func (s *session) begin(l *link, id int64, timeout time.Duration, err error) error {
	s.mu.Lock()
	s.id = id
	s.life.prove(l.began)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return s.grant(timeout)
}

// attached is called when the session was taken up on another connection. A server with another configuration may have given it a
// shorter time-out: then it lasts for less than its holds were told.
func (s *session) attached(l *link, id int64, timeout time.Duration) {
	switch {
	case id != s.id:
	case timeout < s.TTL:
		s.End()
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.life.attached(l.began, clock.Now())
	}
}

// authenticate tells the server who we are.
func (s *session) authenticate(ctx context.Context) error {
	u := s.driver.user
	_, err := call(ctx, s, 0, func(conn *zk.Conn) (struct{}, error) {
		return struct{}{}, conn.AddAuth("digest", []byte(u.name+":"+u.password))
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("authenticating as %q: %w", u.name, err)
	}
	return err
}

// find takes the session that the application's connection has. When that was last in touch is not known.
func (s *session) find(ctx context.Context) error {
	if err := s.connected(ctx, loosely); err != nil {
		return err
	}
	s.id = s.conn.SessionID()
	timeout, err := negotiated(s.conn)
	if err == nil {
		err = s.grant(timeout)
	}
	if err != nil {
		return err
	}
	longer, cancel := context.WithTimeout(s.Context(), s.TTL/2)
	defer cancel()
	return s.refresh(longer, "", time.Time{})
}
