package zookeeper

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/sessions"
)

const (
	ticksPerTTL   = 4                // at least
	longestTick   = 30 * time.Second // if none is given
	contactsDue   = 8                // a TTL, if no others are made
	retriesPerTTL = 24
)

// pace is the TTL by which pauses are measured: a very long one does not make anybody wait for
// long.
func pace(ttl time.Duration) time.Duration { return min(ttl, sessionTimeout) }

// session is one of ZooKeeper's, which all contenders of one TTL share. It has a connection of its
// own. It implements [sessions.Backend].
type session struct {
	*sessions.Session[*lease]

	driver  *backend
	anyTTL  bool // whatever time-out is granted
	network *network
	conn    *zk.Conn
	id      int64

	watches     watches
	sharedViews sharedViews

	mu      sync.Mutex
	life    life
	due     time.Time     // when to be in touch next, after a failure
	changed chan struct{} // closed when the connection's state changes
}

func newSession(d *backend, ttl time.Duration, anyTTL bool) *session {
	s := &session{
		driver: d, anyTTL: anyTTL,
		watches: watches{nodes: map[string]*watch{}}, sharedViews: sharedViews{next: map[string]*sharedView{}},
		life: life{ttl: ttl, tick: d.tickFor(ttl)}, changed: make(chan struct{}),
	}
	s.Session = sessions.New[*lease](d.sessions.Context(), ttl, s)
	s.network = newNetwork(s.Context(), d, ttl)
	return s
}

type silent struct{}

func (silent) Printf(string, ...any) {}

// Start implements sessions.Backend.
func (s *session) Start() error {
	ctx, cancel := context.WithTimeout(s.Context(), s.TTL*3/8)
	defer cancel()
	err := s.connect(ctx)
	if err == nil {
		err = s.network.checkVersion(ctx, s.conn.Server())
	}
	if u := s.driver.user; err == nil && u != nil {
		_, err = call(ctx, s, nothing, func(conn *zk.Conn) (struct{}, error) {
			return struct{}{}, conn.AddAuth("digest", []byte(u.name+":"+u.password))
		})
		if err != nil && ctx.Err() == nil {
			err = fmt.Errorf("authenticating as %q: %w", u.name, err)
		}
	}
	switch {
	case err == nil:
		s.driver.sessions.Add(s.TTL, s) // which the servers may have changed
		return nil
	case s.Ended():
		return errSessionEnded
	case ctx.Err() == nil:
		return err
	default:
		return cmp.Or(s.network.why(), errNoAnswer)
	}
}

// connect makes the session.
func (s *session) connect(ctx context.Context) error {
	n := s.network
	made := make(chan error, 1)
	var connecting sync.WaitGroup // until s.conn is set
	connecting.Add(1)
	conn, events, err := zk.Connect(s.driver.servers, s.TTL, zk.WithDialer(n.dial), zk.WithHostProvider(n),
		zk.WithLogger(silent{}), zk.WithLogInfo(false),
		zk.WithEventCallback(func(e zk.Event) {
			if e.Type != zk.EventSession {
				s.watches.fire(e.Path)
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
			s.mu.Lock()
			defer s.mu.Unlock()
			close(s.changed)
			s.changed = make(chan struct{})
		}))
	if err != nil {
		return err
	}
	s.conn, n.conn, n.events = conn, conn, events
	connecting.Done()
	select {
	case err := <-made:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin takes in the session, on which a quorum has agreed, and the time-out that it was granted.
func (s *session) begin(l *link, id int64, granted time.Duration, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id = id
	s.life.prove(l.began)
	tick := s.driver.tick
	switch {
	case err != nil:
		return err
	case !s.anyTTL && granted != s.TTL:
		return notGranted(s.TTL, granted)
	case granted < ticksPerTTL*tick:
		return fmt.Errorf("%w: the ZooKeeper session's time-out of %v is less than four ticks of %v: ask for %v or more, or %s",
			driver.ErrUnsupported, granted, tick, ticksPerTTL*tick, sayTick)
	}
	s.TTL, s.life.ttl, s.life.tick = granted, granted, s.driver.tickFor(granted)
	return nil
}

// tickFor is how long a contact of a session takes to ripen. Servers grant no session of less than
// two of their ticks, and the leader asks followers twice a tick: a quarter of the TTL is enough
// for any servers, and longestTick for those of a tick of a minute.
func (d *backend) tickFor(ttl time.Duration) time.Duration {
	if d.tick != 0 {
		return d.tick
	}
	return min(ttl/ticksPerTTL, longestTick)
}

func notGranted(asked, granted time.Duration) error {
	return fmt.Errorf("%w: TTL %v: this ZooKeeper grants %v: ask for that, or change its minSessionTimeout or maxSessionTimeout",
		driver.ErrUnsupported, asked, granted)
}

// attached is called when the session was taken up on another connection. A server with another
// configuration may have given it a shorter time-out: then it lasts for less than its holds were
// told.
func (s *session) attached(l *link, id int64, timeout time.Duration) {
	switch {
	case id != s.id:
	case timeout < s.TTL:
		s.End()
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.life.contact(l.began, clock.Now(), 0)
	}
}

// Stop implements sessions.Backend.
func (s *session) Stop() {
	s.watches.fireAll()
	if slices.ContainsFunc(s.Users(), func(l *lease) bool { return l.left.Load() }) {
		s.network.cut() // the server keeps the session for its time-out, and with it the lease that is to be left
	}
	s.network.close()
	for _, l := range s.Users() {
		_ = l.finish(false)
	}
}

// Due implements sessions.Backend.
func (s *session) Due() (renew, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn.SessionID() == s.id { // else Renew finds that it has ended
		renew = later(s.life.youngest().Add(pace(s.TTL)/contactsDue), s.due)
	}
	return renew, s.life.until()
}

// Renew implements sessions.Backend: it is in touch, and has that proven if less than half a TTL is
// left and somebody has used the session lately. It does not wait for the answers: over a slow link
// the next contact is made meanwhile.
func (s *session) Renew() {
	s.dueIn(pace(s.TTL) / contactsDue)
	_ = s.driver.spawn(func() {
		ctx, cancel := context.WithTimeout(s.Context(), pace(s.TTL)/2)
		defer cancel()
		_, err := s.exist(ctx, s.driver.root())
		if err == nil && s.Unused() < sessions.KeepUnused && s.Left() < s.TTL/2 {
			err = s.prove(ctx)
		}
		if err != nil {
			s.dueIn(pace(s.TTL) / retriesPerTTL)
			s.Wake()
		}
	})
}

func (s *session) dueIn(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.due = clock.Now().Add(d)
}

// refresh is in touch, and has that proven, until the session lasts long enough to begin a hold,
// and a contact that was sent after since is proven. It aims for three fifths of a TTL; over a slow
// link a little more than half has to do. node, if it is not empty, has to exist.
func (s *session) refresh(ctx context.Context, node string, since time.Time) error {
	for ago := s.TTL * 2 / 5; ; ago = s.TTL * 9 / 20 {
		s.mu.Lock()
		now := clock.Now()
		fresh := s.life.proven.After(later(now.Add(-ago), since))
		old := later(now.Add(-s.TTL*2/5), since)
		provable, ripens := s.life.ripe(now).After(old), s.life.ripens(old)
		s.mu.Unlock()
		var err error
		switch {
		case fresh:
			return nil
		case provable && node == "":
			err = s.prove(ctx)
		case provable:
			_, err = s.check(ctx, node)
		case !ripens.IsZero():
			err = clock.Sleep(ctx, ripens.Sub(now))
		default:
			_, err = s.exist(ctx, s.driver.root())
		}
		if err != nil {
			return err
		}
	}
}

// Watch implements sessions.Backend.
func (s *session) Watch(leases []*lease) {
	_ = s.driver.spawn(func() {
		for some := range slices.Chunk(leases, nodesPerCheck) {
			_ = each(len(some), func(i int) error { return some[i].watch() })
		}
	})
}
