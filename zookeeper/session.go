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
	longestDelay  = 30 * time.Second // if none is given
	heartbeatRate = 8                // heartbeats a TTL of a session that is not used otherwise
	retriesPerTTL = 24
)

// pace is the TTL by which intervals and time-outs are measured. It is capped, so that nobody waits
// for long because a TTL is very long.
func pace(ttl time.Duration) time.Duration { return min(ttl, sessionTimeout) }

// session is a session of ZooKeeper, which all contenders of one TTL share, with a connection of its
// own. It implements [sessions.Backend]. heartbeat.go says how long it lasts.
type session struct {
	*sessions.Session[*lease]

	driver      *backend
	anyTTL      bool // whatever time-out is granted
	network     *network
	watches     watches
	sharedViews sharedViews

	// set once, before the session has started:
	conn *zk.Conn
	id   int64

	mu         sync.Mutex // guards what follows
	heartbeats heartbeats
	due        time.Time     // no heartbeat before that
	changed    chan struct{} // closed when the connection's state changes
}

func newSession(d *backend, ttl time.Duration, anyTTL bool) *session {
	s := &session{
		driver: d, anyTTL: anyTTL,
		watches: watches{nodes: map[string]*watch{}}, sharedViews: sharedViews{next: map[string]*queueView{}},
		heartbeats: heartbeats{ttl: ttl, delay: d.delayFor(ttl)}, changed: make(chan struct{}),
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
		return cmp.Or(s.network.lastError(), errNoAnswer)
	}
}

// connect makes the session.
func (s *session) connect(ctx context.Context) error {
	n := s.network
	made := make(chan error, 1)
	var connecting sync.WaitGroup // until s.conn is set
	connecting.Add(1)
	conn, events, _ := zk.Connect(s.driver.servers, s.TTL, zk.WithDialer(n.dial), zk.WithHostProvider(n),
		zk.WithLogger(silent{}), zk.WithLogInfo(false),
		zk.WithEventCallback(func(e zk.Event) {
			if e.Type != zk.EventSession {
				s.watches.fire(e.Path)
				return
			}
			connecting.Wait()
			switch e.State {
			case zk.StateHasSession:
				l := n.established(s.conn)
				granted, err := negotiated(s.conn)
				if id := s.conn.SessionID(); s.id != 0 {
					s.resumed(l, id, granted)
				} else {
					made <- s.begin(l, id, granted, err)
				}
			case zk.StateExpired:
				s.End()
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			close(s.changed)
			s.changed = make(chan struct{})
		})) // which fails only if there are no servers
	s.conn, n.conn, n.events = conn, conn, events
	connecting.Done()
	select {
	case err := <-made:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// begin records the session, which a quorum has made on the connection l, and its time-out.
func (s *session) begin(l *link, id int64, granted time.Duration, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id = id
	s.heartbeats.confirm(l.began)
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
	s.TTL, s.heartbeats.ttl, s.heartbeats.delay = granted, granted, s.driver.delayFor(granted)
	return nil
}

// delayFor returns how long a heartbeat may be on its way to the leader. The leader pings followers
// twice in a tickTime, and servers grant no session of less than two: a quarter of the TTL is enough
// for any servers, and longestDelay for those whose tickTime is a minute.
func (d *backend) delayFor(ttl time.Duration) time.Duration {
	if d.tick != 0 {
		return d.tick
	}
	return min(ttl/ticksPerTTL, longestDelay)
}

func notGranted(asked, granted time.Duration) error {
	return fmt.Errorf("%w: TTL %v: this ZooKeeper grants %v: ask for that, or change its minSessionTimeout or maxSessionTimeout",
		driver.ErrUnsupported, asked, granted)
}

// resumed records that the connection l has a session. If it is this one, a server with another
// configuration may have granted it less: then it expires before the deadlines of its holds.
func (s *session) resumed(l *link, id int64, granted time.Duration) {
	switch {
	case id != s.id:
	case granted < s.TTL:
		s.End()
	default:
		s.mu.Lock()
		defer s.mu.Unlock()
		s.heartbeats.record(l.began, clock.Now(), 0)
	}
}

// Stop implements sessions.Backend.
func (s *session) Stop() {
	s.watches.fireAll()
	if slices.ContainsFunc(s.Users(), func(l *lease) bool { return l.left.Load() }) {
		s.network.cut() // the server keeps the session until it expires, and with it what is to be left
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
	if s.conn.SessionID() == s.id { // else Renew finds that the session has ended
		renew = later(s.heartbeats.latest().Add(pace(s.TTL)/heartbeatRate), s.due)
	}
	return renew, s.heartbeats.expires()
}

// Renew implements sessions.Backend. It sends a heartbeat, and a quorum write to confirm earlier ones
// if less than half a TTL is left and the session was used lately. It does not wait for the replies:
// over a slow link the next heartbeat is sent before they come.
func (s *session) Renew() {
	s.dueIn(pace(s.TTL) / heartbeatRate)
	_ = s.driver.spawn(func() {
		ctx, cancel := context.WithTimeout(s.Context(), pace(s.TTL)/2)
		defer cancel()
		_, err := s.exist(ctx, s.driver.root())
		if err == nil && s.Unused() < sessions.KeepUnused && s.Left() < s.TTL/2 {
			err = s.confirm(ctx)
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

// refresh returns when the session lasts long enough to begin a hold, and a heartbeat that was sent
// after since is confirmed. It sends heartbeats and quorum writes until then. It aims for three
// fifths of a TTL; over a slow link a little more than half has to do. node, if it is not empty, has
// to exist.
func (s *session) refresh(ctx context.Context, node string, since time.Time) error {
	for ago := s.TTL * 2 / 5; ; ago = s.TTL * 9 / 20 {
		s.mu.Lock()
		now := clock.Now()
		fresh := s.heartbeats.confirmed.After(later(now.Add(-ago), since))
		old := later(now.Add(-s.TTL*2/5), since)
		confirms, from := s.heartbeats.latestConfirmable(now).After(old), s.heartbeats.confirmable(old)
		s.mu.Unlock()
		var err error
		switch {
		case fresh:
			return nil
		case confirms && node == "":
			err = s.confirm(ctx)
		case confirms:
			_, err = s.check(ctx, node)
		case !from.IsZero():
			err = clock.Sleep(ctx, from.Sub(now))
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
