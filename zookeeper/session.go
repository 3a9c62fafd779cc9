package zookeeper

import (
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
	ticksPerTTL    = 4                // at least
	longestTick    = 30 * time.Second // if none is given
	contactsDue    = 8                // a TTL, if no others are made
	retriesPerTTL  = 24
	farewell       = 700 * time.Millisecond
	sweepAgain     = 50 * time.Millisecond
	sessionTimeout = 30 * time.Second
)

// pace is the TTL by which pauses are measured: a very long one does not make anybody wait for long.
func pace(ttl time.Duration) time.Duration { return min(ttl, sessionTimeout) }

// session is one of ZooKeeper's, which all contenders of one TTL share. It implements [sessions.Backend].
type session struct {
	*sessions.Session[*lease]

	driver  *Driver
	anyTTL  bool // whatever time-out is granted
	conn    *zk.Conn
	id      int64
	own     *network // nil if the connection is the application's
	changes *signal  // of the connection's state

	mu      sync.Mutex
	life    life
	due     time.Time         // when to be in touch next, after a failure
	watches map[string]*watch // by their nodes
	added   chan struct{}     // holds one: there is another watch to hear of; nil: nobody hears, see hearWatches
	holds   map[string]*lease // that are watched, by their nodes
	phases  map[string]*phase // by the nodes of locks
}

func newSession(d *Driver, ttl time.Duration, anyTTL bool) *session {
	s := &session{
		driver: d, anyTTL: anyTTL, conn: d.conn, changes: &d.changes, watches: map[string]*watch{}, holds: map[string]*lease{}, phases: map[string]*phase{},
		life: life{ttl: ttl, tick: d.tickFor(ttl)},
	}
	s.Session = sessions.New[*lease](d.ctx, ttl, s)
	if d.conn != nil {
		s.Permanent = true
	} else {
		s.changes, s.own = new(signal), newNetwork(s.Context(), d, ttl)
	}
	return s
}

// join makes a lease on the session for req.TTL.
func (d *Driver) join(ctx context.Context, req driver.Request) (*lease, error) {
	s, err := d.sessionFor(req.TTL, false)
	if err == nil {
		err = s.Wait(ctx)
	}
	if err == nil && s.TTL != req.TTL {
		err = notGranted(req.TTL, s.TTL)
	}
	if err != nil {
		return nil, err
	}
	for {
		if l, ok := s.join(req); ok {
			return l, nil
		}
		if s.Ended() {
			return nil, errSessionEnded
		}
		// Nobody has used it, and it is as good as new if a quorum still knows it.
		if err := s.refresh(ctx, "", time.Time{}); err != nil {
			return nil, err
		}
	}
}

// join makes a lease on the session, if that takes any.
func (s *session) join(req driver.Request) (*lease, bool) {
	l := &lease{place: newPlace(s.driver.chroot, req.Name), session: s, data: []byte(req.Metadata)}
	if req.Shared {
		l.share()
	}
	return l, s.Join(l)
}

// key returns the key of the session for ttl. The application's connection has one session.
func (d *Driver) key(ttl time.Duration) time.Duration {
	if d.conn != nil {
		return 0
	}
	return ttl
}

// sessionFor returns the session for ttl, which may not have started yet. With anyTTL it has the one that the servers grant.
func (d *Driver) sessionFor(ttl time.Duration, anyTTL bool) (*session, error) {
	return d.sessions.Get(d.key(ttl), func() *session { return newSession(d, ttl, anyTTL || d.conn != nil) })
}

// Stop implements sessions.Backend.
func (s *session) Stop() {
	s.wakeAll()
	if s.own == nil {
		s.sweep()
		return
	}
	if slices.ContainsFunc(s.Users(), func(l *lease) bool { return l.left.Load() }) {
		s.own.cut() // the server keeps the session for its time-out, and with it the lease that is to be left
	}
	s.own.close()
	for _, l := range s.Users() {
		_ = l.finish(false)
	}
}

// sweep removes what the leases of a session on the application's connection have left behind, once the core has
// given up: the connection may have been lost for so long that all holds are lost, and come back with
// the session, and the nodes on it, alive.
func (s *session) sweep() {
	for {
		for _, l := range s.Users() {
			ctx, cancel := context.WithTimeout(s.driver.ctx, s.TTL/2)
			_ = l.release(ctx)
			cancel()
		}
		if len(s.Users()) == 0 || clock.Sleep(s.driver.ctx, max(sweepAgain, pace(s.TTL)/retriesPerTTL)) != nil {
			return
		}
	}
}

// grant takes in the time-out that the server has granted.
func (s *session) grant(timeout time.Duration) error {
	d := s.driver
	if s.own == nil {
		d.granted.Store(int64(timeout))
	}
	switch {
	case !s.anyTTL && timeout != s.TTL:
		return notGranted(s.TTL, timeout)
	case timeout < ticksPerTTL*d.tick:
		return fmt.Errorf("%w: the ZooKeeper session's time-out of %v is less than four ticks of %v: ask for %v or more, or %s",
			driver.ErrUnsupported, timeout, d.tick, ticksPerTTL*d.tick, sayTick)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.TTL, s.life.ttl, s.life.tick = timeout, timeout, d.tickFor(timeout)
	return nil
}

// tickFor is how long a contact of a session takes to ripen. Servers grant no session of less than two of their ticks, and the leader
// asks followers twice a tick: a quarter of the TTL is enough for any servers, and longestTick for those of a tick of a minute.
func (d *Driver) tickFor(ttl time.Duration) time.Duration {
	if d.tick != 0 {
		return d.tick
	}
	return min(ttl/ticksPerTTL, longestTick)
}

func notGranted(asked, granted time.Duration) error {
	return fmt.Errorf("%w: TTL %v: this ZooKeeper grants %v: ask for that, or change its minSessionTimeout or maxSessionTimeout",
		driver.ErrUnsupported, asked, granted)
}

// lasts reports whether the session has not ended, and the connection still has it.
func (s *session) lasts() bool { return !s.Ended() && s.conn.SessionID() == s.id }

// Due implements sessions.Backend.
func (s *session) Due() (renew, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conn.SessionID() == s.id { // else Renew finds that it has ended
		renew = later(s.life.youngest().Add(pace(s.TTL)/contactsDue), s.due)
	}
	return renew, s.life.until()
}

// Renew is in touch, and has that proven if less than half a TTL is left and somebody has used the
// session lately. It does not wait for the answers: over a slow link the next contact is made
// meanwhile.
func (s *session) Renew() {
	s.dueIn(pace(s.TTL) / contactsDue)
	_ = s.driver.spawn(func() {
		ctx, cancel := context.WithTimeout(s.Context(), pace(s.TTL)/2)
		defer cancel()
		err := s.touch(ctx)
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
			err = s.touch(ctx)
		}
		if err != nil {
			return err
		}
	}
}
