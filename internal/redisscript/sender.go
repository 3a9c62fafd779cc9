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

// How requests share round trips.
const (
	maxCalls    = 128                   // in a batch of several requests
	overdue     = 20 * time.Millisecond // after which batches that are under way do not keep others from being sent
	unwatched   = overdue / 2           // for which nobody looks whether a request's context has ended
	moment      = time.Millisecond      // for what was given up to end
	idleWorkers = 64                    // where each request goes by itself
	longest     = time.Minute           // that a request which is about no hold may take
)

var errNoAnswer = error(noanswer.Error("the server has not answered in time"))

// sender makes all requests of a Driver. It has goroutines of its own, because a client library may
// ignore contexts. Requests of many goroutines share round trips: each batch takes along what has
// come while others were under way.
type sender struct {
	runner   Runner
	workers  *workers.Workers
	atOnce   int            // how many batches may be in flight; later requests go with the next. 0: each request is a batch
	requests sync.Pool      // of *request, answered
	direct   sync.WaitGroup // batches that their callers make

	mu       sync.Mutex
	closed   bool
	waiting  []*request
	underWay int         // batches of this era
	latest   time.Time   // when the latest of them was sent
	era      int32       // ends when that is overdue, and a request waits
	overtime *time.Timer // ends it; armed while a request waits
}

func newSender(r Runner) *sender {
	s := &sender{runner: r, atOnce: r.AtOnce()}
	s.workers = workers.New(cmp.Or(s.atOnce, idleWorkers))
	s.overtime = time.AfterFunc(time.Hour, s.tooLate)
	s.overtime.Stop()
	s.requests.New = func() any {
		r := &request{done: make(chan struct{}, 1), timer: time.NewTimer(time.Hour)}
		r.timer.Stop()
		return r
	}
	return s
}

// request is one call, or several that are sent together.
type request struct {
	calls   []Call
	replies []Reply
	direct  bool // made by the goroutine that asks, unless it has to wait for others

	ctx   context.Context // of the caller, for what client libraries find in it
	until time.Time       // nobody waits for longer
	timer *time.Timer     // of the caller

	batch *batch        // that it was sent in
	next  *request      // of that
	ended atomic.Bool   // there are replies
	done  chan struct{} // gets a value then

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

// send makes a request. It returns when that is answered, with the first reply; or else, with
// false, soon after ctx has ended or timeout has passed: then the request is dropped, or goes on
// and the reply has MayHaveRun set. The caller does not use a request again that is answered; one
// that is not is the sender's.
func (s *sender) send(ctx context.Context, timeout time.Duration, r *request) (reply Reply, answered bool) {
	if r.direct {
		return s.sendDirect(ctx, r)
	}
	if err := ctx.Err(); err != nil {
		return Reply{Err: err}, false
	}
	sent := time.Now()
	first := min(timeout, unwatched)
	r.ctx, r.until = ctx, sent.Add(timeout)
	if deadline, ok := ctx.Deadline(); ok && deadline.Add(2*moment).Before(r.until) {
		r.until = deadline.Add(2 * moment) // after the caller has seen it, which knows better why it ends
		first = min(first, deadline.Sub(sent))
	}
	if !s.enqueue(r) {
		return Reply{Err: driver.ErrClosed}, false
	}
	// The Done of a context costs more than all else here, and most requests are answered before it
	// matters. Its own deadline, which the core sets, is known without; that of the caller is not.
	r.timer.Reset(first)
	select {
	case <-r.done:
		return s.onReply(r, errNoAnswer), true
	case <-r.timer.C:
	}
	r.timer.Reset(timeout - first)
	select {
	case <-r.done:
		return s.onReply(r, errNoAnswer), true
	case <-ctx.Done():
	case <-r.timer.C:
	}
	why := cmp.Or(ctx.Err(), errNoAnswer)
	if s.drop(r) {
		return Reply{Err: why}, false
	}
	r.timer.Reset(moment)
	select {
	case <-r.done: // by a client library that heeds contexts
		return s.onReply(r, why), true
	case <-r.timer.C:
		return Reply{Err: why, MayHaveRun: true}, false
	}
}

// sendDirect makes a request whose caller bounds and counts requests by itself. It goes at once,
// without a hand-over to another goroutine, or with the next batch. It returns when the request is
// over, or was dropped because ctx ended before it was sent.
func (s *sender) sendDirect(ctx context.Context, r *request) (reply Reply, answered bool) {
	if era, alone := s.begin(); alone {
		Run(ctx, s.runner, r.calls, r.replies)
		s.goOn(era)
		return s.onReply(r, nil), true
	}
	r.ctx = ctx
	if deadline, ok := ctx.Deadline(); ok {
		r.until = deadline
	} else {
		r.until = time.Now().Add(longest)
	}
	if !s.enqueue(r) {
		return Reply{Err: driver.ErrClosed}, false
	}
	select {
	case <-r.done:
		return s.onReply(r, nil), true
	case <-ctx.Done():
	}
	if s.drop(r) {
		return Reply{Err: ctx.Err()}, false
	}
	<-r.done
	return s.onReply(r, ctx.Err()), true
}

// begin counts a batch that its caller makes, of one request. It returns false if that is to wait,
// or s is closed.
func (s *sender) begin() (era int32, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !s.makeRoom() {
		return 0, false
	}
	s.underWay++
	s.latest = time.Now()
	s.direct.Add(1)
	return s.era, true
}

// makeRoom returns false if a request has to wait, because of batches that were sent just now.
// Those that are overdue it does not count any more: their connections may be silent, and other
// connections may not. The caller holds s.mu.
func (s *sender) makeRoom() bool {
	if s.atOnce == 0 || s.underWay < s.atOnce {
		return true
	}
	if time.Since(s.latest) < overdue {
		return false
	}
	s.era++
	s.underWay = 0
	return true
}

// goOn ends a batch that its caller has made, and has the next sent.
func (s *sender) goOn(era int32) {
	defer s.direct.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.next(era); b != nil {
		s.workers.Do(b)
	}
}

// next ends a batch of that era, and returns the one that comes after it, if any does. The caller
// holds s.mu.
func (s *sender) next(era int32) *batch {
	switch {
	case era != s.era: // it was overdue, and another has taken over
		return nil
	case len(s.waiting) == 0:
		s.underWay--
		return nil
	default:
		return s.load()
	}
}

// onReply returns the first reply to r, which is over, and explains the errors of all. That the
// batch has ended is no error of the client library's: why nobody waits is.
func (s *sender) onReply(r *request, why error) Reply {
	for i := range r.replies {
		err := r.replies[i].Err
		timedOut := errors.Is(err, os.ErrDeadlineExceeded) && !time.Now().Before(r.until)           // seen by the client library first
		if why != nil && (timedOut || err == context.DeadlineExceeded || err == context.Canceled) { //nolint:errorlint // one that wraps it has more to say
			err = why
		}
		r.replies[i].Err = explain(err, s.atOnce == 0)
	}
	reply := r.replies[0]
	r.timer.Stop()
	*r = request{done: r.done, timer: r.timer}
	s.requests.Put(r)
	return reply
}

// enqueue has a request made. It returns false if the sender is closed.
func (s *sender) enqueue(r *request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.waiting = append(s.waiting, r)
	switch {
	case s.makeRoom():
		s.underWay++
		s.workers.Do(s.load())
	case len(s.waiting) == 1:
		s.overtime.Reset(overdue - time.Since(s.latest))
	}
	return true
}

// drop takes r back, which nobody waits for any more. It returns false if r may have been sent:
// then its batch ends if that has no other.
func (s *sender) drop(r *request) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.waiting, r); i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
		r.timer.Stop()
		return true
	}
	if r.batch.wanted--; r.batch.wanted == 0 {
		r.batch.end()
	}
	return false
}

// tooLate sends what waits, if the batches under way are overdue.
func (s *sender) tooLate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) == 0 || s.closed {
		return
	}
	if !s.makeRoom() { // another batch was sent since
		s.overtime.Reset(overdue - time.Since(s.latest))
		return
	}
	s.underWay++
	s.workers.Do(s.load())
}

// close returns when all requests are answered. There are to be no others.
func (s *sender) close() {
	s.mu.Lock()
	s.closed = true
	s.overtime.Stop()
	s.mu.Unlock()
	s.direct.Wait()
	s.workers.Close()
}
