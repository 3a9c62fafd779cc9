// Package send has the requests of a Driver made: by the goroutine that asks, or by a worker, alone
// or together with others.
package send

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/noanswer"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/workers"
)

// How requests are sent.
//
// A client library may ignore the cancellation of a context. So a worker makes a request, and its
// caller waits for the worker or for the end of the context, whichever is first. To hand a request
// over and its reply back takes two switches of goroutines, which cost more than the round trip to a
// server nearby. The calling goroutine makes the request itself if
//
//   - no other is in flight, or each request is a batch;
//   - nothing but its deadline ends the caller's context, and the client library heeds deadlines;
//
// or if it is Counted, a batch more may be in flight, and nothing waits: its caller waits in a
// goroutine of its own. Requests that come while atOnce
// batches are in flight share the next round trip.
//
// The Done of a context and a timer cost more than all else here, and most requests are answered
// before they matter. So a caller waits for its reply alone. Every 10 ms, as long as anything is in
// flight, a tick looks at all requests, and gives up those whose context or time has ended.
//
// Invariants. (1) At most atOnce batches of an era are in flight, unless each request is a batch;
// an era ends when its batches are overdue and a request waits: their connections may be silent. (2)
// A caller returns soon after its context has ended, or its time is over. What is not sent by then
// never is; what is in flight has an unknown outcome, and its context ends when nobody waits for
// the batch. (3) Close returns when nothing is in flight.
//
// Lost reply: Send returns with MayHaveRun set. The request is the sender's until it has ended, and
// its caller can wait for that (Request.Await), to undo what it has done.
const (
	maxCalls    = 128                   // in a batch of several requests
	interval    = 10 * time.Millisecond // between two looks at what is in flight
	moment      = time.Millisecond      // for a client library to return after the end of its context
	idleWorkers = 64                    // where each request is a batch

	// Overdue is after how long batches in flight do not keep others from being sent.
	Overdue = 20 * time.Millisecond

	// silence is how long a server that answers may take for it: longer than a round trip around the
	// world.
	silence = 200 * time.Millisecond

	// Longest is the time of a request that is about no hold.
	Longest = time.Minute

	// MostAtOnce is what AtOnce returns at most: a second batch is on its way while the server works
	// on the first.
	MostAtOnce = 2
)

// ErrNoAnswer is the error of a request whose time is over.
var ErrNoAnswer = error(noanswer.Error("the server has not answered in time"))

// Runner is a client library that makes requests.
type Runner interface {
	script.Runner

	// AtOnce returns how many requests may be in flight where all go to one address: those of
	// several goroutines share round trips. It returns 0 where each request goes by itself.
	AtOnce() int

	// HeedsDeadlines reports whether Run returns soon after the deadline of its context. It need not
	// return when that is cancelled.
	HeedsDeadlines() bool

	// Silent is called when a request got no answer for long, and its time is over: its connection
	// may have fallen silent, as all that are open do when a firewall has lost its table. New ones
	// may work.
	Silent()
}

// Sender makes all requests of a Driver.
type Sender struct {
	// Set once:
	runner Runner
	atOnce int  // batches in flight; later requests go with the next. 0: each request is a batch
	heeds  bool // the Runner heeds deadlines

	workers  *workers.Workers
	requests sync.Pool      // of *Request, answered
	direct   sync.WaitGroup // what no worker does: batches that their callers make, and calls aside

	// mu guards:
	mu       sync.Mutex
	closed   bool
	waiting  []*Request // to be sent
	inFlight int        // batches of this era
	era      int32
	latest   time.Time   // when the latest batch was sent
	batches  []*batch    // in flight, of all eras
	look     *time.Timer // runs tick
	looking  bool        // look is armed

	seen []*Request // owned by tick
}

// New returns a Sender of requests through r.
func New(r Runner) *Sender {
	s := &Sender{runner: r, atOnce: r.AtOnce(), heeds: r.HeedsDeadlines()}
	s.workers = workers.New(cmp.Or(s.atOnce, idleWorkers))
	s.look = time.AfterFunc(time.Hour, s.tick)
	s.look.Stop()
	s.requests.New = func() any { return &Request{done: make(chan bool, 2)} }
	return s
}

// Request returns one of one call.
func (s *Sender) Request(what *script.Script, keys []any, args ...any) *Request {
	r := s.RequestOf(nil, nil)
	r.call[0] = script.Call{Script: what, Keys: keys, Args: append(r.args[:0], args...)}
	r.calls, r.replies = r.call[:], r.reply[:]
	return r
}

// RequestOf returns one of several calls, which belong to it together with replies until it is
// answered.
func (s *Sender) RequestOf(calls []script.Call, replies []script.Reply) *Request {
	r := s.requests.Get().(*Request)
	r.calls, r.replies = calls, replies
	return r
}

// Call makes one call, which is about no hold.
func (s *Sender) Call(ctx context.Context, what *script.Script, keys []any, args ...any) (any, error) {
	reply, _ := s.Send(ctx, Longest, s.Request(what, keys, args...))
	return reply.Value, reply.Err
}

// Send makes a request. It returns the first reply when that is there; or else, with false, soon
// after ctx has ended or timeout has passed: then the request was dropped, or goes on and the reply
// has MayHaveRun set. The caller does not use a request again that is answered; one that is not is
// the sender's.
func (s *Sender) Send(ctx context.Context, timeout time.Duration, r *Request) (reply script.Reply, answered bool) {
	if err := ctx.Err(); err != nil {
		return script.Reply{Err: err}, false
	}
	now := time.Now()
	reply, answered = s.send(ctx, now, timeout, r)
	if reply.Err != nil && isTimeout(reply.Err) && time.Since(now) >= silence {
		s.runner.Silent()
	}
	return reply, answered
}

func isTimeout(err error) bool {
	return errors.Is(err, ErrNoAnswer) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

func (s *Sender) send(ctx context.Context, now time.Time, timeout time.Duration, r *Request) (reply script.Reply, answered bool) {
	r.ctx, r.sent = ctx, now
	if r.Counted {
		timeout = Longest
	}
	r.until = r.sent.Add(timeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(2*moment).Before(r.until) {
		r.until = deadline.Add(2 * moment) // after the caller has seen it, which knows better why it ends
	}
	if caller, ok := ctx.(interface{ Cancellable() bool }); ok { // as the core's
		r.alone = s.heeds && !caller.Cancellable()
	}
	b, ok := s.accept(r)
	switch {
	case !ok:
		return script.Reply{Err: driver.ErrClosed}, false
	case b != nil:
		return s.onReply(r, s.runHere(b, r)), true
	}
	answered = <-r.done
	why := cmp.Or(ctx.Err(), ErrNoAnswer)
	if deadline, ok := ctx.Deadline(); ok && why == ErrNoAnswer && !time.Now().Before(deadline) { //nolint:errorlint // it is ours
		why = context.DeadlineExceeded // which ctx is late to say on a busy machine
	}
	if answered {
		return s.onReply(r, why), true
	}
	if r.unsent {
		return script.Reply{Err: why}, false
	}
	soon := time.NewTimer(moment)
	defer soon.Stop()
	select {
	case <-r.done: // by a client library that heeds contexts
		return s.onReply(r, why), true
	case <-soon.C:
		return script.Reply{Err: why, MayHaveRun: true}, false
	}
}

// onReply returns the first reply to r, which is over, and explains the errors of all. That the
// batch has ended is no error of the client library's: why nobody waits is.
func (s *Sender) onReply(r *Request, why error) script.Reply {
	for i := range r.replies {
		err := r.replies[i].Err
		if err == nil {
			continue
		}
		timedOut := errors.Is(err, os.ErrDeadlineExceeded) && !time.Now().Before(r.until)           // seen by the client library first
		if why != nil && (timedOut || err == context.DeadlineExceeded || err == context.Canceled) { //nolint:errorlint // one that wraps it has more to say
			err = cmp.Or(r.ctx.Err(), why)
		}
		r.replies[i].Err = explain(err, s.atOnce == 0)
	}
	reply := r.replies[0]
	if !r.seen {
		*r = Request{done: r.done}
		s.requests.Put(r)
	}
	return reply
}

// accept has a request made, or returns the batch that its caller is to make. It returns false if
// the sender is closed.
func (s *Sender) accept(r *Request) (own *batch, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false
	}
	s.waiting = append(s.waiting, r)
	switch {
	case !s.makeRoom():
	case len(s.waiting) == 1 && (r.Counted || r.alone && (s.atOnce == 0 || s.inFlight == 0)):
		s.direct.Add(1)
		own = s.load(r.sent)
		own.own = true
	default:
		s.workers.Do(s.load(r.sent))
	}
	if !s.looking {
		s.looking = true
		s.look.Reset(min(interval, r.until.Sub(r.sent)))
	}
	return own, true
}

// makeRoom returns false if a request has to wait, because of batches that were sent just now.
// Those that are overdue it does not count any more: their connections may be silent, and other
// connections may not. The caller holds s.mu.
func (s *Sender) makeRoom() bool {
	if s.atOnce == 0 || s.inFlight < s.atOnce {
		return true
	}
	if time.Since(s.latest) < Overdue {
		return false
	}
	s.era++
	s.inFlight = 0
	return true
}

// load returns a batch of the requests that wait, or of some. The caller holds s.mu.
func (s *Sender) load(now time.Time) *batch {
	n, calls := 1, len(s.waiting[0].calls)
	for n < len(s.waiting) && calls+len(s.waiting[n].calls) <= maxCalls {
		calls += len(s.waiting[n].calls)
		n++
	}
	s.latest = now
	s.inFlight++
	b := &batch{sender: s, era: s.era, calls: int32(calls), wanted: int32(n)}
	if n == 1 {
		b.values = s.waiting[0].ctx
	}
	for _, r := range slices.Backward(s.waiting[:n]) {
		r.batch, r.next, b.first = b, b.first, r
		if r.until.After(b.until) {
			b.until = r.until
		}
	}
	s.waiting = slices.Delete(s.waiting, 0, n)
	s.batches = append(s.batches, b)
	return b
}

// run makes all requests of b, in one round trip, and sends further batches for as long as requests
// wait.
func (s *Sender) run(b *batch) {
	for b != nil {
		calls, replies := b.first.calls, b.first.replies
		if b.first.next != nil {
			calls, replies = make([]script.Call, 0, b.calls), make([]script.Reply, b.calls)
			for r := b.first; r != nil; r = r.next {
				calls = append(calls, r.calls...)
			}
		}
		script.Run(b, s.runner, calls, replies)
		next := s.finish(b)
		for r, following := b.first, (*Request)(nil); r != nil; r = following {
			following, r.next = r.next, nil // before its caller has it back
			replies = replies[copy(r.replies, replies):]
			r.ended.Store(true)
			r.done <- true
		}
		b = next
	}
}

// runHere makes b, of r alone, in the goroutine of its caller, and has a worker send what has come
// meanwhile. It returns what the error of a request means whose context has ended. A hook of the
// client library may panic.
func (s *Sender) runHere(b *batch, r *Request) (why error) {
	defer s.direct.Done()
	defer func() {
		if next := s.finish(b); next != nil {
			s.workers.Do(next)
		}
	}()
	if r.Counted {
		script.Run(r.ctx, s.runner, r.calls, r.replies)
		return nil
	}
	script.Run(b, s.runner, r.calls, r.replies)
	return ErrNoAnswer
}

// finish ends b, which is answered, and returns the batch that comes after it, if any does.
func (s *Sender) finish(b *batch) (next *batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	b.end(now)
	i := slices.Index(s.batches, b)
	s.batches = slices.Delete(s.batches, i, i+1)
	if b.era != s.era { // it was overdue, and another has taken over
		return nil
	}
	if s.inFlight--; len(s.waiting) > 0 {
		return s.load(now)
	}
	return nil
}

// tick looks at what is in flight or waits, for as long as there is any: most requests are answered
// before. It sends what waits for batches that are overdue, gives up requests whose caller's context
// or time has ended, and ends batches whose deadline has passed.
func (s *Sender) tick() {
	s.mu.Lock()
	now, next := time.Now(), interval
	for len(s.waiting) > 0 && s.makeRoom() {
		s.workers.Do(s.load(now))
	}
	for _, b := range s.batches {
		for r := b.first; r != nil && !b.own; r = r.next { // else its caller makes it
			s.seen = append(s.seen, r)
		}
	}
	s.seen = append(s.seen, s.waiting...)
	for _, r := range s.seen {
		r.seen = true
	}
	s.mu.Unlock()
	over := slices.DeleteFunc(s.seen, func(r *Request) bool {
		left := r.until.Sub(now)
		if deadline, ok := r.ctx.Deadline(); ok { // anybody's code, which may use this Sender
			left = min(left, deadline.Sub(now))
		}
		if left > 0 {
			next = min(next, left)
		}
		return left > 0 && r.ctx.Err() == nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range over {
		if !r.givenUp {
			s.giveUp(r, now)
		}
	}
	clear(over)
	s.seen = over[:0]
	s.waiting = slices.DeleteFunc(s.waiting, func(r *Request) bool { return r.unsent })
	for _, b := range s.batches {
		if !now.Before(b.until) {
			b.end(now)
		}
	}
	if s.looking = len(s.batches)+len(s.waiting) > 0; s.looking {
		s.look.Reset(next)
	}
}

// giveUp has nobody wait for a request. If that was sent, its batch ends if nobody waits for any
// other. A Counted one's caller waits all the same. The caller holds s.mu.
func (s *Sender) giveUp(r *Request, now time.Time) {
	r.givenUp, r.unsent = true, r.batch == nil
	if !r.unsent {
		if r.batch.wanted--; r.batch.wanted == 0 {
			r.batch.end(now)
		}
		if r.Counted {
			return
		}
	}
	r.done <- false
}

// Close returns when all requests are answered. There are to be no others.
func (s *Sender) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.direct.Wait()
	s.workers.Close()
}

// Aside makes a call of the client library's, which may ignore contexts, and leaves it when ctx
// ends: what it sets is not to be read then. Close waits for it.
func (s *Sender) Aside(ctx context.Context, f func(context.Context) error) error {
	done := make(chan error, 1)
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return driver.ErrClosed
	}
	s.direct.Go(func() { done <- f(ctx) })
	s.mu.Unlock()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Request is one call, or several that are sent together.
type Request struct {
	Counted bool // by its caller, which bounds requests by itself, and waits for each until it ends

	calls   []script.Call
	replies []script.Reply
	alone   bool // it is made by its caller, if no other is in flight

	ctx   context.Context // of the caller, for what client libraries find in it
	sent  time.Time       // or given to a worker to be sent
	until time.Time       // nobody waits for longer

	// The sender's mu guards:
	batch   *batch   // that it was sent in
	next    *Request // of that batch
	seen    bool     // by tick, which may have it still: it is not used again
	givenUp bool     // nobody waits for it
	unsent  bool     // and it never will be sent

	ended atomic.Bool // there are replies
	done  chan bool   // gets true when there are, and false before that if it is given up

	call  [1]script.Call // of one call, calls and replies are these
	reply [1]script.Reply
	args  [script.MostArgs]any
}

// Ended reports whether a request has ended that was not answered in time.
func (r *Request) Ended() bool { return r.ended.Load() }

// Await waits until such a request has ended, and returns an error if ctx ends before.
func (r *Request) Await(ctx context.Context) error {
	if r.Ended() {
		return nil
	}
	select {
	case <-r.done:
		r.done <- true // for others who wait
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Reply returns the first reply to such a request, when it has ended.
func (r *Request) Reply() script.Reply { return r.reply[0] }
