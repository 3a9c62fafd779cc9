package redisscript

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
// or if it is for a node of Redlock, which waits in goroutines of its own. Requests that come while
// atOnce batches are in flight share the next round trip.
//
// Invariants. (1) At most atOnce batches of an era are in flight, unless each request is a batch;
// an era ends when its batches are overdue and a request waits: their connections may be silent. (2)
// A caller returns soon after its context has ended, or its time is over. What is not sent by then
// never is; what is in flight has an unknown outcome, and its context ends when nobody waits for
// the batch. (3) close returns when nothing is in flight.
const (
	maxCalls    = 128                   // in a batch of several requests
	overdue     = 20 * time.Millisecond // after which batches in flight do not keep others from being sent
	interval    = 10 * time.Millisecond // between two looks at what is in flight
	moment      = time.Millisecond      // for a client library to return after the end of its context
	idleWorkers = 64                    // where each request is a batch
	longest     = time.Minute           // of a request that is about no hold
)

var errNoAnswer = error(noanswer.Error("the server has not answered in time"))

// sender makes all requests of a Driver.
type sender struct {
	runner   Runner
	workers  *workers.Workers
	atOnce   int            // batches in flight; later requests go with the next. 0: each request is a batch
	heeds    bool           // the Runner heeds deadlines
	requests sync.Pool      // of *request, answered
	direct   sync.WaitGroup // batches that their callers make

	// mu guards:
	mu       sync.Mutex
	closed   bool
	waiting  []*request // to be sent
	inFlight int        // batches of this era
	era      int32
	latest   time.Time   // when the latest batch was sent
	batches  *batch      // in flight, of all eras: a list
	look     *time.Timer // runs tick
	looking  bool        // look is armed
}

func newSender(r Runner) *sender {
	s := &sender{runner: r, atOnce: r.AtOnce(), heeds: r.HeedsDeadlines()}
	s.workers = workers.New(cmp.Or(s.atOnce, idleWorkers))
	s.look = time.AfterFunc(time.Hour, s.tick)
	s.look.Stop()
	s.requests.New = func() any { return &request{done: make(chan bool, 2)} }
	return s
}

// request is one call, or several that are sent together.
type request struct {
	calls   []Call
	replies []Reply
	redlock bool // its caller bounds and counts requests by itself
	alone   bool // it is made by its caller, if no other is in flight

	ctx   context.Context // of the caller, for what client libraries find in it
	sent  time.Time       // or given to a worker to be sent
	until time.Time       // nobody waits for longer

	// The sender's mu guards:
	batch   *batch   // that it was sent in
	next    *request // of that batch
	watch   *watch   // nil: not watched, or over
	givenUp bool     // nobody waits for it
	unsent  bool     // given up before it was sent

	ended atomic.Bool // there are replies
	done  chan bool   // gets true when there are, and false before that if it is given up

	call  [1]Call // of one call, calls and replies are these
	reply [1]Reply
	args  [mostArgs]any
}

// request returns one of one call.
func (s *sender) request(script *Script, keys []any, args ...any) *request {
	r := s.requestOf(nil, nil)
	r.call[0] = Call{Script: script, Keys: keys, Args: append(r.args[:0], args...)}
	r.calls, r.replies = r.call[:], r.reply[:]
	return r
}

// requestOf returns one of several calls, which belong to it together with replies until it is
// answered.
func (s *sender) requestOf(calls []Call, replies []Reply) *request {
	r := s.requests.Get().(*request)
	r.calls, r.replies = calls, replies
	return r
}

// call makes one call, which is about no hold.
func (s *sender) call(ctx context.Context, script *Script, keys []any, args ...any) (any, error) {
	reply, _ := s.send(ctx, longest, s.request(script, keys, args...))
	return reply.Value, reply.Err
}

// send makes a request. It returns the first reply when that is there; or else, with false, soon
// after ctx has ended or timeout has passed: then the request was dropped, or goes on and the reply
// has MayHaveRun set. The caller does not use a request again that is answered; one that is not is
// the sender's.
func (s *sender) send(ctx context.Context, timeout time.Duration, r *request) (reply Reply, answered bool) {
	if err := ctx.Err(); err != nil {
		return Reply{Err: err}, false
	}
	r.ctx, r.sent = ctx, time.Now()
	if r.redlock {
		timeout = longest
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
		return Reply{Err: driver.ErrClosed}, false
	case b != nil:
		return s.onReply(r, b.runHere(r)), true
	}
	answered = <-r.done
	why := cmp.Or(ctx.Err(), errNoAnswer)
	if deadline, ok := ctx.Deadline(); ok && why == errNoAnswer && !time.Now().Before(deadline) { //nolint:errorlint // it is ours
		why = context.DeadlineExceeded // which ctx is late to say on a busy machine
	}
	if answered {
		return s.onReply(r, why), true
	}
	if r.unsent {
		return Reply{Err: why}, false
	}
	if r.redlock {
		<-r.done
		return s.onReply(r, why), true
	}
	soon := time.NewTimer(moment)
	defer soon.Stop()
	select {
	case <-r.done: // by a client library that heeds contexts
		return s.onReply(r, why), true
	case <-soon.C:
		return Reply{Err: why, MayHaveRun: true}, false
	}
}

// accept has a request made, or returns the batch that its caller is to make. It returns false if
// the sender is closed.
func (s *sender) accept(r *request) (own *batch, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false
	}
	s.waiting = append(s.waiting, r)
	switch {
	case !s.makeRoom():
	case len(s.waiting) == 1 && (r.redlock || r.alone && (s.atOnce == 0 || s.inFlight == 0)):
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
func (s *sender) makeRoom() bool {
	if s.atOnce == 0 || s.inFlight < s.atOnce {
		return true
	}
	if time.Since(s.latest) < overdue {
		return false
	}
	s.era++
	s.inFlight = 0
	return true
}

// onReply returns the first reply to r, which is over, and explains the errors of all. That the
// batch has ended is no error of the client library's: why nobody waits is.
func (s *sender) onReply(r *request, why error) Reply {
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
	*r = request{done: r.done}
	s.requests.Put(r)
	return reply
}

// tick looks at what is in flight or waits, for as long as there is any: most requests are answered
// before. It sends what waits for batches that are overdue, and ends contexts whose deadline has
// passed.
func (s *sender) tick() {
	for _, w := range s.lookAround() {
		w.start()
	}
}

func (s *sender) lookAround() (begun []*watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for len(s.waiting) > 0 && s.makeRoom() {
		s.workers.Do(s.load(now))
	}
	watchOld := func(r *request) {
		if r.watch == nil && !r.givenUp && (now.Sub(r.sent) >= interval/2 || !now.Before(r.until)) {
			r.watch = &watch{sender: s, of: r, ctx: r.ctx, until: r.until}
			begun = append(begun, r.watch)
		}
	}
	for b := s.batches; b != nil; b = b.next {
		if !now.Before(b.until) {
			b.end(now)
		}
		for r := b.first; r != nil && !b.own; r = r.next {
			watchOld(r)
		}
	}
	for _, r := range s.waiting {
		watchOld(r)
	}
	if s.looking = s.batches != nil || len(s.waiting) > 0; s.looking {
		s.look.Reset(interval)
	}
	return begun
}

// watch gives a request up when its caller's context ends, or its time is over. The Done of a
// context costs more than all else here, and most requests are answered before it matters.
type watch struct {
	sender *sender
	of     *request
	ctx    context.Context
	until  time.Time

	// The sender's mu guards:
	over   bool // its request is answered or given up
	timer  *time.Timer
	forget func() bool
}

// start begins it. The caller does not hold the sender's mu, for the Done of a caller's context may
// be anybody's code.
func (w *watch) start() {
	timer, forget := time.AfterFunc(time.Until(w.until), w.giveUp), context.AfterFunc(w.ctx, w.giveUp)
	w.sender.mu.Lock()
	defer w.sender.mu.Unlock()
	w.timer, w.forget = timer, forget
	if w.over {
		w.stop()
	}
}

// stop ends it. The caller holds the sender's mu.
func (w *watch) stop() {
	w.over = true
	if w.timer != nil {
		w.timer.Stop()
		w.forget()
	}
}

// giveUp has the caller of its request not wait any more. If that was sent, its batch ends if
// nobody waits for any other.
func (w *watch) giveUp() {
	s, r := w.sender, w.of
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.over {
		return // r is answered, and may be another by now; or given up
	}
	w.stop()
	r.givenUp = true
	if i := slices.Index(s.waiting, r); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		r.unsent = true
	} else if r.batch.wanted--; r.batch.wanted == 0 {
		r.batch.end(time.Now())
	}
	r.done <- false
}

// close returns when all requests are answered. There are to be no others.
func (s *sender) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.direct.Wait()
	s.workers.Close()
}
