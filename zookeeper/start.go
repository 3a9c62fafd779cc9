package zookeeper

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/internal/clock"
)

// ownConn is a connection that a session of Open's has for itself.
type ownConn struct {
	conn   *zk.Conn
	events <-chan zk.Event
	net    *network
	making sync.RWMutex // of containers, for makeContainer
}

// Start makes the session, or finds the one of the application's connection.
func (s *session) Start() error {
	patience := s.TTL * 3 / 8
	if s.driver.conn != nil {
		patience = s.driver.dialTimeout
	}
	ctx, cancel := context.WithTimeout(s.Context(), patience)
	defer cancel()
	var err error
	if s.driver.conn != nil {
		err = s.find(ctx)
	} else {
		err = s.connect(ctx)
	}
	switch {
	case err == nil:
		s.driver.sessions.Add(s.driver.key(s.TTL), s)
		return nil
	case s.driver.ctx.Err() != nil:
		return errSessionEnded
	case ctx.Err() == nil:
		return err
	}
	if why := s.trouble(); why != nil {
		return why
	}
	return errNoAnswer
}

// trouble is what is known to be wrong with the connection.
func (s *session) trouble() error {
	s.mu.Lock()
	own := s.own
	s.mu.Unlock()
	switch {
	case own != nil:
		return own.net.why()
	case s.driver.conn != nil && s.driver.conn.State() != zk.StateHasSession:
		return errUnreachable
	default:
		return nil
	}
}

// attachment is a connection on which the session was made, or taken up, with what the server has granted.
type attachment struct {
	link    *link
	id      int64
	timeout time.Duration
	err     error // why timeout is not known
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// connect makes a session of our own. It begins with the making of the connection: a quorum agrees on a new one.
func (s *session) connect(ctx context.Context) error {
	d := s.driver
	n := newNetwork(s.Context(), d.servers, d.dialTimeout, s.TTL)
	n.tls = d.tls
	made := make(chan attachment, 1)
	begun := false // the library's goroutine's own
	var conn *zk.Conn
	var connecting sync.WaitGroup // until conn is set
	connecting.Add(1)
	conn, events, err := zk.Connect(d.servers, s.TTL, zk.WithDialer(n.dial), zk.WithHostProvider(n),
		zk.WithLogger(silent{}), zk.WithLogInfo(false),
		zk.WithEventCallback(func(e zk.Event) {
			if e.Type != zk.EventSession {
				return
			}
			switch e.State {
			case zk.StateHasSession:
				connecting.Wait()
				a := attachment{link: n.attached(conn), id: conn.SessionID()}
				a.timeout, a.err = negotiated(conn)
				if begun {
					s.attached(a)
				} else {
					begun = true
					made <- a
				}
			case zk.StateExpired:
				s.End()
			}
			s.changes.raise()
		}))
	connecting.Done()
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.own = &ownConn{conn: conn, events: events, net: n}
	s.mu.Unlock()
	var first attachment
	select {
	case first = <-made:
	case <-ctx.Done():
		return ctx.Err()
	}
	if first.err != nil {
		return first.err
	}
	s.mu.Lock()
	s.conn, s.id = conn, first.id
	s.life.begin(first.link.began)
	s.mu.Unlock()
	if err := s.grant(first.timeout); err != nil {
		return err
	}
	if err := d.checkVersion(ctx, n, first.link); err != nil {
		return err
	}
	return s.authenticate(ctx)
}

// authenticate tells the server who we are, if the Driver has a user.
func (s *session) authenticate(ctx context.Context) error {
	d := s.driver
	if d.user == nil {
		return nil
	}
	_, err := call(ctx, s, greets, func(conn *zk.Conn) (struct{}, error) {
		return struct{}{}, conn.AddAuth("digest", []byte(d.user.name+":"+d.user.password))
	})
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("authenticating as %q: %w", d.user.name, err)
	}
	return err
}

// attached is called when the session was taken up on another connection. A server with another configuration may have given it a
// shorter time-out: then it lasts for less than its holds were told.
func (s *session) attached(a attachment) {
	s.mu.Lock()
	same := a.id != 0 && a.id == s.id
	shorter := same && a.timeout < s.TTL
	if same && !shorter {
		s.life.attached(a.link.began, clock.Now())
	}
	s.mu.Unlock()
	if shorter {
		s.End()
	}
}

// close ends the session at the server if that can be reached, and the connection in any case.
func (o *ownConn) close() {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		o.making.Lock() // when it closes, the library reads the answer to this request while it may be writing that
		o.conn.Close()
		o.making.Unlock()
		for range o.events { // until the library's goroutines have ended
		}
	}()
	t := time.NewTimer(farewell)
	defer t.Stop()
	select {
	case <-closed:
		return
	case <-t.C:
	}
	o.net.cut()
	<-closed
}

// find takes the session that the application's connection has. When that was last in touch is not known.
func (s *session) find(ctx context.Context) error {
	conn := s.driver.conn
	for {
		changed := s.changes.next()
		if conn.State() == zk.StateHasSession && conn.SessionID() != 0 {
			break
		}
		if err := s.await(ctx, changed, nil); err != nil {
			return err
		}
	}
	s.conn, s.id = conn, conn.SessionID()
	timeout, err := negotiated(conn)
	if err == nil {
		err = s.grant(timeout)
	}
	if err != nil {
		return err
	}
	longer, cancel := context.WithTimeout(s.Context(), s.TTL/2)
	defer cancel()
	return s.refresh(longer, "")
}
