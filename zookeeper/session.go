package zookeeper

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/outage"
)

const (
	ticksPerTTL    = 4                // at least
	longestTick    = 30 * time.Second // if none is given
	contactsDue    = 8                // a TTL, if no others are made
	retriesPerTTL  = 24
	keepUnused     = time.Minute // a session that nobody uses, or its TTL if that is longer
	farewell       = 700 * time.Millisecond
	sweepAgain     = 50 * time.Millisecond
	sessionTimeout = 30 * time.Second
)

// pace is the TTL by which pauses are measured: a very long one does not make anybody wait for long.
func pace(ttl time.Duration) time.Duration { return min(ttl, sessionTimeout) }

// session is one of ZooKeeper's, which all contenders of one TTL share, and the goroutine that keeps in touch with
// it. It ends when the server says that it has, when it was not confirmed for one TTL while somebody
// used it, and with the Driver; one of our own also when nobody has used it for a while. Once it has ended it is never
// revived.
type session struct {
	driver *Driver
	ttl    time.Duration // asked for; granted once it is ready
	any    bool          // whatever time-out is granted

	ready chan struct{} // closed when it stands, or err is set
	err   error
	conn  *zk.Conn // set with id
	id    int64
	own   *ownConn // nil if the connection is the application's

	ctx    context.Context // ends with the session
	cancel context.CancelFunc
	nudge  chan struct{} // holds one: look at it again

	changes *signal // of the connection's state

	mu      sync.Mutex
	life    life
	due     time.Time // when to be in touch next, after a failure
	users   int       // leases that are not finished
	unused  time.Time // since when there are none
	ended   bool
	leases  map[*lease]func() // that are not finished; func may be nil
	watches map[string]<-chan zk.Event
}

func newSession(d *Driver, ttl time.Duration) *session {
	s := &session{
		driver: d, ttl: ttl, ready: make(chan struct{}), nudge: make(chan struct{}, 1), changes: new(signal),
		leases: map[*lease]func(){}, watches: map[string]<-chan zk.Event{}, unused: clock.Now(),
		life: life{ttl: ttl, tick: d.tickFor(ttl)},
	}
	if d.conn != nil {
		s.changes = &d.changes
	}
	s.ctx, s.cancel = context.WithCancel(d.ctx)
	return s
}

// join returns the session for ttl, and counts the caller as one of its users.
func (d *Driver) join(ctx context.Context, ttl time.Duration) (*session, error) {
	s, err := d.sessionFor(ttl, false)
	if err != nil {
		return nil, err
	}
	select {
	case <-s.ready:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.err != nil {
		return nil, s.err
	}
	if s.ttl != ttl {
		return nil, notGranted(ttl, s.ttl)
	}
	for !s.use() {
		if s.over() {
			return nil, errSessionEnded
		}
		// It has idled, and is as good as new if a quorum still knows it.
		if err := s.refresh(ctx, ""); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// sessionFor returns the session for ttl, which may not stand yet. An application's connection has one.
func (d *Driver) sessionFor(ttl time.Duration, granted bool) (*session, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, locker.ErrClosed
	}
	key := ttl
	if d.conn != nil {
		key = 0
	}
	s := d.sessions[key]
	if s == nil || s.over() {
		s = newSession(d, ttl)
		s.any = granted || d.conn != nil
		d.sessions[key] = s
		d.running.Go(s.run)
	}
	return s, nil
}

// forget has later users make another session.
func (d *Driver) forget(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for key, other := range d.sessions {
		if other == s {
			delete(d.sessions, key)
		}
	}
}

// adopt has those who ask for what the session was granted find it.
func (d *Driver) adopt(s *session) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conn == nil && d.sessions[s.ttl] == nil {
		d.sessions[s.ttl] = s
	}
}

func (s *session) run() {
	if err := s.start(); err != nil {
		s.err = err
		s.driver.forget(s)
		s.end()
	}
	close(s.ready)
	if s.err == nil {
		s.keep()
		s.driver.forget(s)
		s.end()
	}
	if s.own != nil {
		s.own.close()
		s.finishAll()
		return
	}
	s.sweep()
}

// grant takes in the time-out that the server has granted.
func (s *session) grant(timeout time.Duration) error {
	tick := s.driver.tick
	if d := s.driver; d.conn != nil {
		d.mu.Lock()
		d.granted = timeout
		d.mu.Unlock()
	}
	switch {
	case !s.any && timeout != s.ttl:
		return notGranted(s.ttl, timeout)
	case timeout < ticksPerTTL*tick:
		return fmt.Errorf("%w: the ZooKeeper session's time-out of %v is less than four ticks of %v: ask for %v or more, or say with the parameter or option tick what tickTime the servers have",
			locker.ErrUnsupported, timeout, tick, ticksPerTTL*tick)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ttl, s.life.ttl, s.life.tick = timeout, timeout, s.driver.tickFor(timeout)
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
		locker.ErrUnsupported, asked, granted)
}

// keep is in touch with the session until that is no longer possible or of any use.
func (s *session) keep() {
	for {
		wait, over := s.next()
		switch {
		case over:
			return
		case wait > 0:
			s.doze(wait)
		default:
			s.beat()
		}
	}
}

// next says how long it is until the next contact is due, and whether there will be none.
func (s *session) next() (wait time.Duration, over bool) {
	if id := s.conn.SessionID(); id != s.id && id != 0 {
		s.end()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := clock.Now()
	until := s.life.until()
	useless := s.own != nil && s.users == 0 && now.Sub(s.unused) > max(s.ttl, keepUnused)
	if s.ended || s.ctx.Err() != nil || useless || s.users > 0 && !now.Before(until) {
		s.ended = true // in this step, so that nobody begins to use it
		return 0, true
	}
	due := s.life.youngest().Add(pace(s.ttl) / contactsDue)
	if s.due.After(due) {
		due = s.due
	}
	wait = min(due.Sub(now), pace(s.ttl)/contactsDue)
	if s.users > 0 {
		wait = min(wait, until.Sub(now))
	}
	return wait, false
}

func (s *session) doze(d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.nudge:
	case <-s.ctx.Done():
	}
}

func (s *session) wake() {
	select {
	case s.nudge <- struct{}{}:
	default:
	}
}

// beat is in touch, and has that proven if less than half a TTL is left and somebody cares.
func (s *session) beat() {
	ctx, cancel := context.WithTimeout(s.ctx, pace(s.ttl)/4)
	defer cancel()
	err := s.touch(ctx)
	s.mu.Lock()
	cares := s.users > 0 || clock.Since(s.unused) < keepUnused
	proof := s.life.until().Sub(clock.Now()) < s.ttl/2
	s.mu.Unlock()
	if err == nil && cares && proof {
		err = s.prove(ctx)
	}
	if err != nil {
		s.mu.Lock()
		s.due = clock.Now().Add(pace(s.ttl) / retriesPerTTL)
		s.mu.Unlock()
	}
}

// refresh is in touch, and has that proven, until the session lasts long enough to begin a hold. node, if it is not
// empty, has to exist.
func (s *session) refresh(ctx context.Context, node string) error {
	for {
		s.mu.Lock()
		now := clock.Now()
		old := now.Add(-s.ttl * 2 / 5)
		fresh, provable, ripens := s.life.proven.After(old), s.life.ripe(now).After(old), s.life.ripens(old)
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
			err = outage.Sleep(ctx, ripens.Sub(now))
		default:
			err = s.touch(ctx)
		}
		if err != nil {
			return err
		}
	}
}
