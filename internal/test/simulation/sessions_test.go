package simulation

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker/driver"
)

// sessions is a server whose locks belong to sessions, like etcd and ZooKeeper: all of a process
// end together, when it has not been heard of for a TTL. Keys stand in a queue, and the first has
// the lock.
type sessions struct {
	world *world
	live  map[uint64]*session
	names map[string]*line
	last  uint64 // of tokens and sessions
}

type session struct {
	number uint64
	until  time.Duration
	keys   map[uint64]*entry // by owner
	gone   map[uint64]bool   // owners that have released here, and whether they held then
}

type line struct{ queue []*entry }

type entry struct {
	claim   *sessionClaim
	session *session
	token   uint64
}

func (s *sessions) now() time.Duration { return time.Since(s.world.began) }

// expire ends the sessions whose time is over.
func (s *sessions) expire() {
	for _, x := range s.live {
		if s.now() >= x.until {
			delete(s.live, x.number)
			for _, e := range x.keys {
				s.remove(e)
				c := e.claim
				c.driver.process.tell("lost", c.owner, func() { c.notify(x.number) })
			}
		}
	}
}

// remove takes a key out of its queue, and wakes the one behind it.
func (s *sessions) remove(e *entry) {
	delete(e.session.keys, e.claim.owner)
	l := s.names[e.claim.Name]
	first := len(l.queue) > 0 && l.queue[0] == e
	l.queue = slices.DeleteFunc(l.queue, func(other *entry) bool { return other == e })
	if first && len(l.queue) > 0 {
		next := l.queue[0].claim
		if next.Wake != nil {
			next.driver.process.tell("wake", next.owner, next.Wake)
		}
	}
}

func (s *sessions) start(ttl time.Duration) any {
	s.last++
	x := &session{s.last, s.now() + ttl, map[uint64]*entry{}, map[uint64]bool{}}
	s.live[x.number] = x
	return x.number
}

// find returns a session, which is renewed, or nil.
func (s *sessions) find(number uint64, ttl time.Duration) *session {
	s.expire()
	x := s.live[number]
	if x != nil {
		x.until = max(x.until, s.now()+ttl)
	}
	return x
}

var errNoSession = errors.New("no such session")

func (s *sessions) ask(c *sessionClaim, number uint64) any {
	x := s.find(number, c.TTL)
	if x == nil {
		return errNoSession
	}
	if _, over := x.gone[c.owner]; over {
		return driver.ErrLost
	}
	l := s.names[c.Name]
	if l == nil {
		l = &line{}
		s.names[c.Name] = l
	}
	e := x.keys[c.owner]
	if e == nil {
		if len(l.queue) > 0 && c.Wake == nil {
			x.gone[c.owner] = false // should the request arrive once more
			return driver.ErrHeld
		}
		s.last++
		e = &entry{c, x, s.last}
		x.keys[c.owner] = e
		l.queue = append(l.queue, e)
	}
	if l.queue[0] != e {
		return driver.ErrHeld
	}
	return granted{e.token}
}

func (s *sessions) extend(c *sessionClaim, number uint64, ttl time.Duration) any {
	x := s.find(number, ttl)
	if x == nil || x.keys[c.owner] == nil {
		return driver.ErrLost
	}
	return true
}

func (s *sessions) release(c *sessionClaim, number uint64) any {
	s.expire()
	x := s.live[number]
	if x == nil {
		return driver.ErrLost
	}
	if held, again := x.gone[c.owner]; again {
		if held {
			return true
		}
		return driver.ErrLost
	}
	e := x.keys[c.owner]
	held := e != nil && s.names[c.Name].queue[0] == e
	x.gone[c.owner] = held
	if e != nil {
		s.remove(e)
	}
	if !held {
		return driver.ErrLost
	}
	s.world.freed(c.Name, e.token)
	return true
}

func (s *sessions) holder(name string) uint64 {
	s.expire()
	if l := s.names[name]; l != nil && len(l.queue) > 0 {
		return l.queue[0].token
	}
	return 0
}

// crash is a change of the leader: sessions last a TTL from when the next one begins.
func (s *sessions) crash() {
	for _, x := range s.live {
		x.until = max(x.until, s.now()+s.world.ttl)
	}
}

func (s *sessions) snapshot() (restore func()) { return s.crash } // a majority knows everything
func (s *sessions) jump(time.Duration)         {}                 // it counts by no wall clock

func (s *sessions) driver(p *process) driver.Driver { return &sessionDriver{server: s, process: p} }

type sessionDriver struct {
	server  *sessions
	process *process

	mu      sync.Mutex
	current *contact
}

// contact is a session as its process knows it.
type contact struct {
	number uint64
	mu     sync.Mutex
	last   time.Time // when the latest request was sent that was answered
}

// heard takes in that a request was answered. It returns false if the session may have ended
// before: the answer changes nothing then.
func (x *contact) heard(sent time.Time, ttl time.Duration) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if time.Since(x.last) >= ttl {
		return false
	}
	if sent.After(x.last) {
		x.last = sent
	}
	return true
}

// over reports whether the session may have ended. It is used no more then, also if it goes on at
// the server.
func (x *contact) over(ttl time.Duration) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return time.Since(x.last) >= ttl
}

func (d *sessionDriver) Claim(req driver.Request) driver.Claim {
	req.Name = bare(req.Name)
	return &sessionClaim{Request: req, driver: d, owner: d.process.owner()}
}
func (d *sessionDriver) Guarantees() driver.Guarantees { return nil }
func (d *sessionDriver) Close() error                  { return nil }

// session returns the one that there is, or starts one.
func (d *sessionDriver) session(ctx context.Context, ttl time.Duration, owner uint64) (*contact, error) {
	d.mu.Lock()
	x := d.current
	d.mu.Unlock()
	if x != nil && !x.over(ttl) {
		return x, nil
	}
	d.ended(x)
	sent := time.Now()
	reply, err := d.process.request(ctx, "session", owner, func(time.Duration) any { return d.server.start(ttl) })
	if err != nil {
		return nil, err
	}
	x = &contact{number: reply.(uint64), last: sent}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current == nil {
		d.current = x
	}
	return d.current, nil
}

func (d *sessionDriver) ended(x *contact) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.current == x {
		d.current = nil
	}
}

type sessionClaim struct {
	driver.Request
	driver *sessionDriver
	owner  uint64

	mu     sync.Mutex
	on     *contact
	others []*contact // on which a request may have left something
	token  uint64
	told   func()
	over   bool // it was lost before told was known
}

func (c *sessionClaim) Ask(ctx context.Context) (time.Duration, error) {
	for range 2 {
		x, err := c.driver.session(ctx, c.TTL, c.owner)
		if err != nil {
			return 0, err
		}
		c.mu.Lock()
		before := c.on
		if before != nil && before != x {
			c.others = append(c.others, before)
		}
		c.on = x
		c.mu.Unlock()
		sent := time.Now()
		reply, err := c.driver.process.request(ctx, "ask", c.owner, func(time.Duration) any { return c.driver.server.ask(c, x.number) })
		if errors.Is(err, errNoSession) {
			c.driver.ended(x)
			continue
		}
		if (err == nil || errors.Is(err, driver.ErrHeld)) && !x.heard(sent, c.TTL) {
			c.driver.ended(x)
			continue
		}
		if err == nil {
			c.mu.Lock()
			c.token = reply.(granted).token
			c.mu.Unlock()
		}
		if errors.Is(err, driver.ErrHeld) && c.Wake == nil && before == nil {
			c.mu.Lock()
			c.on = nil
			c.mu.Unlock()
		}
		return c.TTL / 3, err
	}
	return 0, errNoSession
}

func (c *sessionClaim) Token() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token
}

func (c *sessionClaim) Validity() time.Duration {
	c.mu.Lock()
	x := c.on
	c.mu.Unlock()
	if x == nil {
		return 0
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return time.Until(x.last.Add(c.TTL))
}

func (c *sessionClaim) Extend(ctx context.Context, ttl time.Duration) error {
	c.mu.Lock()
	x := c.on
	c.mu.Unlock()
	if x.over(ttl) {
		c.driver.ended(x)
		return driver.ErrLost
	}
	sent := time.Now()
	_, err := c.driver.process.request(ctx, "extend", c.owner, func(time.Duration) any { return c.driver.server.extend(c, x.number, ttl) })
	if err == nil && !x.heard(sent, ttl) {
		c.driver.ended(x)
		return driver.ErrLost
	}
	return err
}

// Release leaves a mark on each session on which a late request might stand.
func (c *sessionClaim) Release(ctx context.Context) error {
	c.mu.Lock()
	on, others, held := c.on, slices.Clone(c.others), c.token > 0
	c.mu.Unlock()
	for _, x := range others {
		if _, err := c.driver.process.request(ctx, "release former", c.owner^x.number, func(time.Duration) any { return c.driver.server.release(c, x.number) }); err != nil && !errors.Is(err, driver.ErrLost) {
			return err
		}
	}
	if on == nil {
		return nil
	}
	_, err := c.driver.process.request(ctx, "release", c.owner, func(time.Duration) any { return c.driver.server.release(c, on.number) })
	if errors.Is(err, driver.ErrLost) && !held {
		return nil
	}
	return err
}

// NotifyLost implements driver.LossNotifier.
func (c *sessionClaim) NotifyLost(f func()) {
	c.mu.Lock()
	c.told = f
	over := c.over
	c.mu.Unlock()
	if over {
		f()
	}
}

// notify is called when a session has ended. One that the claim has left says nothing of its lock.
func (c *sessionClaim) notify(session uint64) {
	c.mu.Lock()
	f, x := c.told, c.on
	if x == nil || x.number != session {
		c.mu.Unlock()
		return
	}
	c.over = true
	c.mu.Unlock()
	c.driver.ended(x)
	if f != nil {
		f()
	}
}
