package simulation

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// leases is a server whose locks expire one by one, by its own clock: like Redis, with a queue that
// wakes, or like a table of a database, without one.
type leases struct {
	world  *world
	queues bool
	rate   float64       // of its clock
	offset time.Duration // by which its clock has jumped
	names  map[string]*lease
}

// lease is a name. It stays when nobody holds it, because its token does.
type lease struct {
	owner uint64        // 0: nobody
	until time.Duration // by the server's clock
	token uint64        // of the last grant
	queue []*place
	over  map[uint64]bool // owners that have released, and whether they held then
}

type place struct {
	owner uint64
	seen  time.Duration
	wake  func()
}

func (s *leases) now() time.Duration {
	return time.Duration(float64(time.Since(s.world.began))*s.rate) + s.offset
}

func (s *leases) at(name string) *lease {
	l := s.names[name]
	if l == nil {
		l = &lease{over: map[uint64]bool{}}
		s.names[name] = l
	}
	if now := s.now(); l.owner != 0 && now >= l.until {
		l.owner = 0
	}
	return l
}

// granted is the reply to who got the lock. Others are told errors.
type granted struct{ token uint64 }

var errTooLate = errors.New("the request is too late")

func (s *leases) ask(c *leaseClaim, age time.Duration) any {
	l, now := s.at(c.Name), s.now()
	_, over := l.over[c.owner]
	switch {
	case over:
		return driver.ErrLost
	case age > c.TTL/4:
		return errTooLate
	case l.owner == c.owner:
		l.until = max(l.until, now+c.TTL-age)
		return granted{l.token}
	}
	l.queue = slices.DeleteFunc(l.queue, func(p *place) bool { return now-p.seen > c.TTL })
	i := slices.IndexFunc(l.queue, func(p *place) bool { return p.owner == c.owner })
	if l.owner == 0 && (len(l.queue) == 0 || i == 0) {
		if i == 0 {
			l.queue = l.queue[1:]
		}
		l.token++
		l.owner, l.until = c.owner, now+c.TTL-age
		return granted{l.token}
	}
	switch {
	case i >= 0:
		l.queue[i].seen = now
	case s.queues && c.Wake != nil:
		p := c.driver.process
		l.queue = append(l.queue, &place{c.owner, now, func() { p.tell("wake", c.owner, c.Wake) }})
	}
	return driver.ErrHeld
}

func (s *leases) extend(c *leaseClaim, ttl, age time.Duration) any {
	l := s.at(c.Name)
	if l.owner != c.owner {
		return driver.ErrLost
	}
	l.until = max(l.until, s.now()+ttl-age)
	return true
}

func (s *leases) release(c *leaseClaim) any {
	l := s.at(c.Name)
	l.queue = slices.DeleteFunc(l.queue, func(p *place) bool { return p.owner == c.owner })
	held, again := l.over[c.owner]
	if !again {
		held = l.owner == c.owner
		l.over[c.owner] = held
	}
	if l.owner == c.owner {
		l.owner = 0
		s.world.freed(c.Name, l.token)
	}
	if len(l.queue) > 0 && l.owner == 0 {
		l.queue[0].wake()
	}
	if !held {
		return driver.ErrLost
	}
	return true
}

// holder returns the token under which a name is held, or 0.
func (s *leases) holder(name string) uint64 {
	if l := s.at(name); l.owner != 0 {
		return l.token
	}
	return 0
}

func (s *leases) crash() {
	for _, l := range s.names {
		l.queue = nil // waiters ask again
	}
}

func (s *leases) snapshot() (restore func()) {
	copies := map[string]*lease{}
	for name, l := range s.names {
		c := *l
		c.queue, c.over = nil, maps.Clone(l.over)
		copies[name] = &c
	}
	return func() { s.names = copies }
}

func (s *leases) jump(d time.Duration) { s.offset += d }

// driver returns a Driver for a process.
func (s *leases) driver(p *process) driver.Driver { return &leaseDriver{s, p} }

type leaseDriver struct {
	server  *leases
	process *process
}

func (d *leaseDriver) Claim(req driver.Request) driver.Claim {
	req.Name = bare(req.Name)
	return &leaseClaim{Request: req, driver: d, owner: d.process.owner()}
}
func (d *leaseDriver) Guarantees() driver.Guarantees { return nil }
func (d *leaseDriver) Close() error                  { return nil }

// ExtendAll implements driver.BatchExtender, with a request.
func (d *leaseDriver) ExtendAll(ctx context.Context, all []driver.Claim, ttl time.Duration) []error {
	sent, errs := time.Now(), make([]error, len(all))
	reply, err := d.process.request(ctx, "extend all", all[0].(*leaseClaim).owner, func(age time.Duration) any {
		replies := make([]any, len(all))
		for i, l := range all {
			replies[i] = d.server.extend(l.(*leaseClaim), ttl, age)
		}
		return replies
	})
	for i, l := range all {
		if errs[i] = err; err == nil {
			_, errs[i] = l.(*leaseClaim).note(reply.([]any)[i], sent)
		}
	}
	return errs
}

type leaseClaim struct {
	driver.Request
	driver *leaseDriver
	owner  uint64

	mu    sync.Mutex
	token uint64
	until time.Time
	there bool // something of it may be at the server
}

// note takes in a reply to a request that was sent at sent.
func (c *leaseClaim) note(reply any, sent time.Time) (time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err, ok := reply.(error); ok {
		return 0, err
	}
	if g, ok := reply.(granted); ok {
		c.token = g.token
	}
	if until := sent.Add(c.TTL); until.After(c.until) {
		c.until = until
	}
	return 0, nil
}

func (c *leaseClaim) Ask(ctx context.Context) (time.Duration, error) {
	c.mu.Lock()
	before := c.there
	c.there = true
	c.mu.Unlock()
	sent := time.Now()
	reply, err := c.driver.process.request(ctx, "ask", c.owner, func(age time.Duration) any { return c.driver.server.ask(c, age) })
	if err == nil {
		_, err = c.note(reply, sent)
	}
	if errors.Is(err, driver.ErrHeld) && c.Wake == nil && !before {
		c.mu.Lock()
		c.there = false
		c.mu.Unlock()
	}
	if c.driver.server.queues {
		return min(c.TTL/3, time.Second), err
	}
	return 0, err
}

func (c *leaseClaim) Token() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token
}

func (c *leaseClaim) Validity() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Until(c.until)
}

func (c *leaseClaim) Extend(ctx context.Context, ttl time.Duration) error {
	sent := time.Now()
	reply, err := c.driver.process.request(ctx, "extend", c.owner, func(age time.Duration) any { return c.driver.server.extend(c, ttl, age) })
	if err == nil {
		_, err = c.note(reply, sent)
	}
	return err
}

func (c *leaseClaim) Release(ctx context.Context) error {
	c.mu.Lock()
	there, held := c.there, c.token > 0
	c.mu.Unlock()
	if !there {
		return nil
	}
	_, err := c.driver.process.request(ctx, "release", c.owner, func(time.Duration) any { return c.driver.server.release(c) })
	if errors.Is(err, driver.ErrLost) && !held {
		return nil
	}
	return err
}

// workerHold is a hold of a worker.
type workerHold struct {
	name      string
	who       string
	hold      hold
	process   *process
	unlocking bool
}

// hold is a *locker.Hold, or one that a Mutex or a Do has.
type hold interface {
	Err() error
	Token() uint64
	Deadline() time.Time
	Lost() <-chan struct{}
	Extend(ctx context.Context) error
	Unlock(ctx context.Context) error
}

// own is the hold of a Mutex that the workers of a process share.
type own struct {
	*locker.Hold
	mutex *locker.Mutex
}

func (o own) Extend(ctx context.Context) error { return o.mutex.Extend(ctx) }

func (o own) Unlock(ctx context.Context) error { return o.mutex.Unlock(ctx) }

func (o own) Err() error {
	if o.mutex.FencingToken() != o.Token() {
		return locker.ErrLost
	}
	return nil
}

// done is the hold of a Do, whose function may go on until it returns, or the deadline is over.
type done struct {
	own
	deadline *atomic.Int64 // since the beginning, as it was last seen
}

func (d done) Err() error {
	if d.own.Err() == nil {
		d.deadline.Store(max(d.deadline.Load(), d.Hold.Deadline().UnixNano()))
	}
	if time.Now().UnixNano() >= d.deadline.Load() {
		return locker.ErrLost
	}
	return nil
}

func (d done) Deadline() time.Time {
	_ = d.Err()
	return time.Unix(0, d.deadline.Load())
}

// granted checks a hold that was just granted. before is the largest token that had been granted
// when its Lock was called.
func (w *world) granted(p *process, name, who string, h hold, before uint64) *workerHold {
	t := &workerHold{name: name, who: who, hold: h, process: p}
	w.book.Lock()
	defer w.book.Unlock()
	w.note("%s has %s, token %d, until %v, by %T", who, name, h.Token(), h.Deadline().Sub(w.began), h)
	w.grants++
	if p.dead.Load() || h.Err() != nil {
		return t
	}
	if w.safe {
		for _, o := range w.active[name] {
			if !o.unlocking && !o.process.dead.Load() && o.hold.Err() == nil {
				w.breaks("%s has %s with token %d while %s has it with token %d", who, name, h.Token(), o.who, o.hold.Token())
			}
		}
		if h.Token() <= before {
			w.breaks("the token of %s is %d, and %d was granted before", name, h.Token(), before)
		}
	}
	w.tokens[name] = max(w.tokens[name], h.Token())
	if left := time.Until(h.Deadline()); left < w.ttl/2 || left > w.ttl {
		w.breaks("%s has %s for %v more when it is granted, of a TTL of %v", who, name, left, w.ttl)
	}
	w.active[name] = append(w.active[name], t)
	return t
}

// over takes a hold off the book.
func (w *world) over(t *workerHold) {
	for i, o := range w.active[t.name] {
		if o == t {
			w.active[t.name] = append(w.active[t.name][:i:i], w.active[t.name][i+1:]...)
			return
		}
	}
}

// unlock ends a hold, and checks what is said of it.
func (w *world) unlock(ctx context.Context, t *workerHold) {
	deadline := t.hold.Deadline()
	before := t.hold.Err()
	w.book.Lock()
	t.unlocking = true
	w.over(t)
	w.book.Unlock()
	err := t.hold.Unlock(ctx)
	w.mu.Lock()
	freed := w.truth[t.name][t.hold.Token()]
	w.mu.Unlock()
	w.gone(t, 0)
	w.book.Lock()
	defer w.book.Unlock()
	w.note("%s unlocks %s, token %d: %v", t.who, t.name, t.hold.Token(), err)
	late := time.Since(deadline)
	switch {
	case t.process.dead.Load() || t.process.leaves.Load():
	case before != nil && !errors.Is(err, locker.ErrLost):
		w.breaks("%s's Unlock of %s says %v; the hold was lost", t.who, t.name, err)
	case err == nil && !freed && w.safe:
		w.breaks("%s's Unlock of %s says nil, and the server has not released token %d", t.who, t.name, t.hold.Token())
	case before == nil && late > 10*time.Millisecond:
		w.breaks("%s's Unlock of %s returned %v after the deadline", t.who, t.name, late)
	case errors.Is(err, locker.ErrNotHeld):
		w.breaks("%s's Unlock of %s says %v of a hold", t.who, t.name, err)
	}
	if before != nil || errors.Is(err, locker.ErrLost) {
		w.lost++
		if w.calm && !t.process.leaves.Load() && before != nil && t.process.renews {
			w.breaks("%s lost %s though nothing went wrong", t.who, t.name)
		}
	}
}

// gone requires, where nothing goes wrong, that the server has nothing left of a hold that is over,
// soon after a time.
func (w *world) gone(t *workerHold, after time.Duration) {
	if !w.calm || t.process.leaves.Load() {
		return
	}
	token := t.hold.Token()
	time.AfterFunc(after+2*w.latency+3*time.Millisecond, func() {
		w.mu.Lock()
		holder := w.server.holder(t.name)
		w.mu.Unlock()
		if holder == token && !t.process.leaves.Load() {
			w.breaking("%s's hold of %s is over, and the server still has token %d", t.who, t.name, token)
		}
	})
}

func (w *world) breaking(format string, args ...any) {
	w.book.Lock()
	defer w.book.Unlock()
	w.breaks(format, args...)
}

// failed checks why there is no hold.
func (p *process) failed(who, name string, err error) {
	w := p.world
	w.book.Lock()
	defer w.book.Unlock()
	w.note("%s does not have %s: %v", who, name, err)
	known := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, locker.ErrHeld) || errors.Is(err, locker.ErrClosed) || errors.Is(err, locker.ErrLost)
	if strings.Contains(err.Error(), "granted too late") && !known && !strings.Contains(err.Error(), "trylock") {
		w.breaks("%s's Lock of %s gave up after a grant that came too late: %v", who, name, err)
	}
	if w.calm && !known {
		w.breaks("%s's Lock of %s failed though nothing went wrong: %v", who, name, err)
	}
}
