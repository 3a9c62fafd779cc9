package redisscript

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/callctx"
	"github.com/go-locker/locker/internal/noanswer"
	"github.com/go-locker/locker/internal/workers"
)

// How requests share round trips.
const (
	mostTrips   = 2                     // under way; who comes meanwhile goes with the next
	mostCalls   = 128                   // in one
	overdue     = 20 * time.Millisecond // how long to wait for one of them to end; they are not counted any more then
	moment      = time.Millisecond      // for what was given up to end
	idleWorkers = 64                    // where each request goes by itself
)

var errNoAnswer = error(noanswer.Error("the server has not answered in time"))

// sender makes requests in goroutines of its own, for a client library may not heed contexts. Those of many goroutines
// share round trips: each trip takes along what has come while others were under way.
type sender struct {
	run     func(context.Context, []Call, []Reply)
	workers *workers.Workers
	alone   bool      // each request goes by itself, at once
	timers  sync.Pool // of *time.Timer, stopped
	errands sync.Pool // of *errand, answered

	mu       sync.Mutex
	closed   bool
	waiting  []*errand
	couriers []*courier // on trips that are not overdue
	idle     []*courier
	late     *time.Timer // armed while somebody waits
}

func newSender(run func(context.Context, []Call, []Reply), together bool) *sender {
	s := &sender{run: run, alone: !together}
	if s.workers = workers.New(mostTrips); s.alone {
		s.workers = workers.New(idleWorkers)
	}
	s.late = time.AfterFunc(time.Hour, s.tooLate)
	s.late.Stop()
	s.timers.New = func() any {
		t := time.NewTimer(time.Hour)
		t.Stop()
		return t
	}
	s.errands.New = func() any { return &errand{done: make(chan struct{}, 1)} }
	return s
}

// errand is a call on its way.
type errand struct {
	Call
	args  [mostArgs]any   // its own
	ctx   context.Context // of who asks, for what client libraries find in it
	until time.Time       // nobody waits for longer

	fate  atomic.Int32 // whether it was sent or dropped first
	trip  *trip        // that it was sent on
	reply Reply
	ended atomic.Bool   // there is a reply
	done  chan struct{} // gets a value then
}

// The fate of an errand.
const (
	isSent    = 1
	isDropped = 2
)

// send makes a call on the keys of l, for at most patience, and returns when ctx ends. What a take may still do after that
// is l's to undo.
func (d *Driver) send(
	ctx context.Context, l *lease, patience time.Duration, s *Script, keys []any, args []arg,
) Reply {
	if l.proposed {
		var reply [1]Reply
		d.runner.Run(ctx, []Call{{s, keys, values(nil, args)}}, reply[:])
		return reply[0]
	}
	if err := ctx.Err(); err != nil {
		return Reply{Err: err}
	}
	one, other, until := callctx.Ends(ctx)
	if !until.IsZero() {
		patience = min(patience, time.Until(until))
	}
	r := d.sender.errands.Get().(*errand)
	r.Call, r.ctx, r.until = Call{s, keys, values(r.args[:0], args)}, ctx, time.Now().Add(patience)
	if !d.sender.accept(r) {
		return Reply{Err: locker.ErrClosed}
	}
	timer := d.sender.timers.Get().(*time.Timer)
	timer.Reset(patience)
	defer func() {
		timer.Stop()
		d.sender.timers.Put(timer)
	}()
	select {
	case <-r.done:
		return d.sender.answered(r, errNoAnswer)
	case <-one:
	case <-other:
	case <-timer.C:
	}
	why := ctx.Err()
	if why == nil {
		why = errNoAnswer
	}
	if r.fate.CompareAndSwap(0, isDropped) {
		return Reply{Err: why}
	}
	r.trip.unwanted()
	timer.Reset(moment)
	select {
	case <-r.done: // by a client library that heeds contexts
		return d.sender.answered(r, why)
	case <-timer.C:
	}
	if s.Takes {
		l.givenUp = r
	}
	return Reply{Err: why, MayHaveRun: true}
}

// answered is the reply to r, which is over. That the trip has ended is no error of the client library's: why nobody
// waits is.
func (s *sender) answered(r *errand, why error) Reply {
	reply := r.reply
	*r = errand{done: r.done}
	s.errands.Put(r)
	if reply.Err == context.DeadlineExceeded || reply.Err == context.Canceled { //nolint:errorlint // one that wraps it has more to say
		reply.Err = why
	}
	return reply
}

// landed says whether no take of l is under way that nobody waits for.
func (l *lease) landed() bool {
	return l.givenUp == nil || l.givenUp.ended.Load()
}

// land waits until the take of l that was given up has ended. If that takes long, what it has done by then is undone
// beforehand: it holds others up.
func (l *lease) land(ctx context.Context) (undone bool, err error) {
	soon := time.NewTimer(overdue)
	defer soon.Stop()
	for {
		select {
		case <-l.givenUp.done:
			l.givenUp.done <- struct{}{} // for others who wait
			return undone, nil
		case <-ctx.Done():
			return false, errNoAnswer
		case <-soon.C:
			undone = lostUnlessOne(l.driver.send(ctx, l, l.ttl, release, l.keys[:], releaseArgs{l.argOwner, 0, new(sendings)}.list())) == nil
		}
	}
}

// accept has a request made. It returns false if the sender is closed.
func (s *sender) accept(r *errand) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return false
	case s.alone:
		s.workers.Do(workers.Func((&courier{sender: s, errands: []*errand{r}}).make))
	case len(s.couriers) < mostTrips:
		s.waiting = append(s.waiting, r)
		s.start()
	default:
		s.waiting = append(s.waiting, r)
		if len(s.waiting) == 1 {
			s.late.Reset(overdue)
		}
	}
	return true
}

// courier makes requests, trip after trip, for as long as somebody waits.
type courier struct {
	sender  *sender
	errands []*errand // of the trip under way
	calls   []Call    // which that makes
	replies []Reply   // to those
}

// start has a courier set out with those who wait. The caller holds s.mu.
func (s *sender) start() {
	var c *courier
	if last := len(s.idle) - 1; last >= 0 {
		c, s.idle = s.idle[last], s.idle[:last]
	} else {
		c = &courier{sender: s}
	}
	s.couriers = append(s.couriers, c)
	c.load()
	s.workers.Do(c)
}

// load takes along those who wait, or some. The caller holds the sender's mutex.
func (c *courier) load() {
	s := c.sender
	n := min(len(s.waiting), mostCalls)
	c.errands = append(c.errands[:0], s.waiting[:n]...)
	if s.waiting = slices.Delete(s.waiting, 0, n); len(s.waiting) == 0 {
		s.late.Stop()
	} else {
		s.late.Reset(overdue)
	}
}

// Run implements workers.Call.
func (c *courier) Run() {
	for more := true; more; more = c.next() {
		c.make()
	}
}

// next ends a trip, and says whether there is another.
func (c *courier) next() bool {
	s := c.sender
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.Index(s.couriers, c)
	if i < 0 { // it was overdue, and another has taken over
		return false
	}
	if len(s.waiting) == 0 {
		s.couriers = slices.Delete(s.couriers, i, i+1)
		s.idle = append(s.idle, c)
		return false
	}
	c.load()
	return true
}

// tooLate gives up on the trips under way: none has come back for those who wait.
func (s *sender) tooLate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 || s.closed {
		return
	}
	clear(s.couriers)
	s.couriers = s.couriers[:0]
	s.start()
}

// trip is what some requests share, and its context: it ends when nobody waits any more, which is by its deadline, or when
// it has been made.
type trip struct {
	values context.Context // of the one who asks; nil if there are several
	until  time.Time
	wanted atomic.Int32 // how many are still waited for, and one for the trip itself
	done   chan struct{}
	once   sync.Once
}

// Deadline implements context.Context.
func (t *trip) Deadline() (time.Time, bool) { return t.until, true }

// Done implements context.Context.
func (t *trip) Done() <-chan struct{} { return t.done }

// Err implements context.Context.
func (t *trip) Err() error {
	select {
	case <-t.done:
		return context.Canceled
	default:
		return nil
	}
}

// Value implements context.Context.
func (t *trip) Value(key any) any {
	if t.values == nil {
		return nil
	}
	return t.values.Value(key)
}

func (t *trip) end() { t.once.Do(func() { close(t.done) }) }

func (t *trip) unwanted() {
	if t.wanted.Add(-1) == 0 {
		t.end()
	}
}

// make makes those requests that are still wanted, and returns when all are answered. It goes on for as long as one is.
func (c *courier) make() {
	t := &trip{done: make(chan struct{})}
	defer c.unload()
	defer t.end()
	if len(c.errands) == 1 {
		t.values = c.errands[0].ctx
	}
	t.wanted.Store(1)
	c.calls = c.calls[:0]
	wanted := c.errands[:0]
	for _, r := range c.errands {
		if r.until.After(t.until) {
			t.until = r.until
		}
		t.wanted.Add(1)
		r.trip = t
		if r.fate.CompareAndSwap(0, isSent) {
			wanted, c.calls = append(wanted, r), append(c.calls, r.Call)
		} else {
			t.wanted.Add(-1)
		}
	}
	t.unwanted() // by this loop
	if len(wanted) == 0 {
		return
	}
	c.replies = slices.Grow(c.replies[:0], len(wanted))[:len(wanted)] // empty, see unload
	c.sender.run(t, c.calls, c.replies)
	for i, reply := range c.replies {
		wanted[i].reply = reply
		wanted[i].ended.Store(true)
		wanted[i].done <- struct{}{}
	}
}

// unload forgets a trip: what is idle is not to keep leases, nor what their callers had in their contexts.
func (c *courier) unload() {
	clear(c.errands)
	clear(c.calls)
	clear(c.replies)
}

// close returns when all requests are answered. There are to be no others.
func (s *sender) close() {
	s.mu.Lock()
	s.closed = true
	s.late.Stop()
	s.mu.Unlock()
	s.workers.Close()
}
