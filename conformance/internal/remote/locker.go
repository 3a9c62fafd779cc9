// Package remote makes the Lockers of programs, for packages conformance and program.
package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/stdio"
)

// Locker is a locker.Locker of a program.
type Locker struct {
	t    TB
	p    *stdio.Program
	id   string
	name string

	mu   sync.Mutex
	lost chan struct{} // of the current hold; nil: there was none, or nobody tells
	asks uint64        // the request that is answered when it is lost
	ends time.Time     // the last Deadline
	took time.Duration // minimum latency of a grant; 0: there was none
}

const (
	slice     = 100 * time.Millisecond // for which one waits at first that cannot be cancelled
	lastSlice = 8 * slice              // the longest: a take that needs more time than a slice gets it
	tryAgain  = 20 * time.Millisecond  // after which one asks again that cannot wait
	nearly    = 50 * time.Millisecond  // by which a program may give up before the time is over
)

// Open opens the Locker that a request asks for. Its error is that of the program; a breach of the protocol is the Harness's fault.
func Open(t TB, p *stdio.Program, request stdio.Request) (*Locker, error) {
	t.Helper()
	if !utf8.ValidString(*request.Name) {
		return nil, errors.New("JSON has no name that is not UTF-8")
	}
	request.Op = stdio.AskOpen
	r := &Locker{t: t, p: p, id: request.Locker, name: *request.Name}
	over := r.p.Turn()
	defer over()
	_, reply := p.Send(request)
	var answer stdio.Answer
	select {
	case answer = <-reply:
	case <-p.Gone():
		select { // it may have answered, and ended then
		case answer = <-reply:
		default:
			return nil, fmt.Errorf("the program: open: %w", r.broken())
		}
	case <-time.After(stdio.OpenWait):
		return nil, fmt.Errorf("the program: open: no answer for %v", stdio.OpenWait)
	}
	if answer.Result != stdio.OK {
		return nil, fmt.Errorf("the program: open: %s", answer.Error)
	}
	p.Opened(r.id, r.asking)
	return r, nil
}

// Can reports whether the program claims a capability.
func (r *Locker) Can(capability string) bool { return r.p.Can(capability) }

// Lock is the program's. One that only tries is asked again and again; one that cannot be cancelled
// waits for a while each time.
func (r *Locker) Lock(ctx context.Context) error {
	for wait := r.slice(0); ; wait = r.slice(wait) {
		var err error
		start := time.Now()
		switch {
		case !r.p.Can(stdio.CanLock):
			err = r.do(ctx, stdio.Request{Op: stdio.CanTry})
		case r.p.Can(stdio.CanCancel):
			return r.do(ctx, stdio.Request{Op: stdio.CanLock})
		default:
			if err = r.do(ctx, stdio.Request{Op: stdio.CanLock, Limit: limitOf(ctx, wait)}); err == nil {
				r.needs(time.Since(start))
			}
		}
		if !errors.Is(err, locker.ErrHeld) && !errors.Is(err, ErrGaveUp) || ctx.Err() != nil {
			return err
		}
		if time.Since(start) < slice/2 { // it did not wait
			timer := time.NewTimer(tryAgain)
			select {
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
		}
		if ctx.Err() != nil {
			return interrupted(ctx, err)
		}
	}
}

// slice returns the limit of the next lock request to a program without cancel, after one of last that
// was not granted. A long one delays other requests, which wait for it. It backs off until the
// latency of a grant is known, and is twice that then.
func (r *Locker) slice(last time.Duration) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.took == 0 {
		return min(max(slice, 2*last), lastSlice)
	}
	return min(max(slice, 2*r.took), lastSlice)
}

// needs records the latency of a grant.
func (r *Locker) needs(took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.took == 0 || took < r.took {
		r.took = took
	}
}

// TryLock is the program's.
func (r *Locker) TryLock(ctx context.Context) error {
	return r.do(ctx, stdio.Request{Op: stdio.CanTry})
}

// Unlock is the program's.
func (r *Locker) Unlock(ctx context.Context) error {
	asks := r.asking()
	err := r.do(ctx, stdio.Request{Op: stdio.CanUnlock})
	if asks != 0 {
		r.p.Cancel(asks)
	}
	return err
}

// Extend is the program's.
func (r *Locker) Extend(ctx context.Context) error {
	if !r.p.Can(stdio.CanExtend) {
		return ErrMissing
	}
	return r.do(ctx, stdio.Request{Op: stdio.CanExtend})
}

// FencingToken is the program's, or 0 if that does not answer.
func (r *Locker) FencingToken() uint64 {
	if !r.p.Can(stdio.CanToken) {
		return 0
	}
	answer, err := r.ask(context.Background(), stdio.Request{Op: stdio.CanToken})
	if err != nil || answer.Result != stdio.OK {
		return 0
	}
	return uint64(answer.Token)
}

// Lost is closed when the program reports the loss of the hold.
func (r *Locker) Lost() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.lost
}

// Deadline is counted from before the program was asked. It is the last one unless the two differ
// by more than that took.
func (r *Locker) Deadline() time.Time {
	before := time.Now()
	answer, err := r.ask(context.Background(), stdio.Request{Op: stdio.CanDeadline})
	if err != nil || answer.Result != stdio.OK || answer.Left == nil {
		return time.Time{}
	}
	ends := before.Add(time.Duration(*answer.Left * float64(time.Millisecond)))
	r.mu.Lock()
	defer r.mu.Unlock()
	if ends.Sub(r.ends).Abs() > time.Since(before) {
		r.ends = ends
	}
	return r.ends
}

// asking is the request that is answered when the hold is lost, or 0.
func (r *Locker) asking() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asks
}

// granted asks to be told when the new hold is lost.
func (r *Locker) granted() {
	if !r.p.Can(stdio.CanLost) || !r.p.Can(stdio.CanCancel) {
		return
	}
	id, answer := r.p.Send(stdio.Request{Op: stdio.CanLost, Locker: r.id})
	lost := make(chan struct{})
	r.mu.Lock()
	r.lost, r.asks = lost, id
	r.mu.Unlock()
	go func() {
		select {
		case a := <-answer:
			if a.Result == stdio.Lost {
				close(lost)
			}
		case <-r.p.Gone():
		}
	}()
}

// do makes a call whose answer is an error or none.
func (r *Locker) do(ctx context.Context, request stdio.Request) error {
	over := ctx.Err() != nil
	switch {
	case over && r.p.Can(stdio.CanCancel):
		request.Limit = new(int64)
	case over && request.Op != stdio.CanUnlock: // it cannot be told
		return interrupted(ctx, nil)
	case !over && request.Limit == nil:
		request.Limit = limitOf(ctx, 0)
	}
	answer, err := r.ask(ctx, request)
	if err == nil {
		err = Result(answer)
	}
	if err != nil {
		return explained(ctx, err)
	}
	if request.Op == stdio.CanLock || request.Op == stdio.CanTry {
		r.granted()
	}
	return nil
}

// explained is an error, with what it has to do with the end of ctx. A program's clock may be a little ahead of that.
func explained(ctx context.Context, err error) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < nearly {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return interrupted(ctx, err)
	}
	return err
}

// limitOf is how much time ctx leaves, and not more than atMost unless that is 0; nil if there is
// no limit.
func limitOf(ctx context.Context, atMost time.Duration) *int64 {
	left := atMost
	if deadline, ok := ctx.Deadline(); ok && (left == 0 || time.Until(deadline) < left) {
		left = max(time.Until(deadline), time.Millisecond)
	}
	if left == 0 {
		return nil
	}
	limit := stdio.Milliseconds(left)
	return &limit
}

// interrupted is err when ctx has ended.
func interrupted(ctx context.Context, err error) error {
	return errors.Join(ctx.Err(), context.Cause(ctx), err)
}

// ask returns when the program has answered, or is no more, even if ctx ends: a process that is
// stopped says nothing.
func (r *Locker) ask(ctx context.Context, request stdio.Request) (answer stdio.Answer, err error) {
	over := r.p.Turn()
	defer over()
	request.Locker = r.id
	id, reply := r.p.Send(request)
	ended := ctx.Done()
	if !r.p.Can(stdio.CanCancel) {
		ended = nil
	}
	for {
		select {
		case answer = <-reply:
			return answer, nil
		case <-ended:
			ended = nil
			r.p.Cancel(id)
		case <-r.p.Gone():
			select {
			case answer = <-reply:
				return answer, nil
			default:
				return answer, r.broken()
			}
		}
	}
}

// broken is why there is no answer. Unless the suite has killed the program, it ends the trial: that says nothing of the lock.
func (r *Locker) broken() error {
	why := r.p.Failure()
	if !r.p.Killed() {
		r.t.Fatalf("%v", r.p.Blamed(why))
	}
	return fmt.Errorf("the program: %w", why)
}
