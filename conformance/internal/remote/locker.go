// Package remote makes the Lockers of programs, for packages conformance and program.
package remote

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	lost chan struct{} // of the current hold; nil: none, or losses are not reported
	asks uint64        // ID of the request that is answered when it is lost
	ends time.Time     // the last Deadline
	took time.Duration // minimum latency of a grant; 0: there was none
}

const (
	slice     = 100 * time.Millisecond // first limit of a wait that cannot be cancelled
	lastSlice = 8 * slice              // the longest, for takes that need more time
	tryAgain  = 20 * time.Millisecond  // pause before a program that cannot wait retries
	nearly    = 50 * time.Millisecond  // how long before its limit a program may give up
)

// Open opens a Locker by an open request. It returns the program's error; a breach of the protocol
// is the Harness's fault.
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
	switch answer, err := p.Await(reply, stdio.OpenWait); {
	case p.Failure() != nil && err != nil:
		return nil, fmt.Errorf("the program: open: %w", r.broken())
	case err != nil:
		return nil, fmt.Errorf("the program: open: %w", err)
	case answer.Result != stdio.OK:
		return nil, fmt.Errorf("the program: open: %s", answer.Error)
	}
	p.Opened(r.id, r.asking)
	return r, nil
}

// Can reports whether the program claims a capability.
func (r *Locker) Can(capability string) bool { return r.p.Can(capability) }

// Lock calls the program's lock, or retries its try if it has no lock. It limits each wait if the
// program cannot cancel it.
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

// slice returns the limit of the next lock request to a program without cancel, after one of last
// that was not granted. A long one delays other requests, which wait for it. It backs off until the
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

// TryLock calls the program's try.
func (r *Locker) TryLock(ctx context.Context) error {
	return r.do(ctx, stdio.Request{Op: stdio.CanTry})
}

// Unlock calls the program's unlock.
func (r *Locker) Unlock(ctx context.Context) error {
	asks := r.asking()
	err := r.do(ctx, stdio.Request{Op: stdio.CanUnlock})
	if asks != 0 {
		r.p.Cancel(asks)
	}
	return err
}

// Extend calls the program's extend.
func (r *Locker) Extend(ctx context.Context) error {
	if !r.p.Can(stdio.CanExtend) {
		return ErrMissing
	}
	return r.do(ctx, stdio.Request{Op: stdio.CanExtend})
}

// FencingToken returns the program's token, or 0 if the program does not answer.
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

// asking returns the ID of the request that is answered when the hold is lost, or 0.
func (r *Locker) asking() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.asks
}

// granted subscribes to the loss of the new hold.
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

// do makes a call that returns only an error.
func (r *Locker) do(ctx context.Context, request stdio.Request) error {
	over := ctx.Err() != nil
	switch {
	case over && r.p.Can(stdio.CanCancel):
		request.Limit = new(int64)
	case over && request.Op != stdio.CanUnlock: // the program cannot learn that ctx has ended
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

// explained joins err with the error of ctx if ctx has ended, or is about to: a program's clock may
// be a little ahead.
func explained(ctx context.Context, err error) error {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < nearly {
		<-ctx.Done()
	}
	if ctx.Err() != nil {
		return interrupted(ctx, err)
	}
	return err
}

// limitOf returns the time that ctx leaves, at most atMost unless that is 0; nil if there is no
// limit.
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

// interrupted joins err with the error and cause of ctx, which has ended.
func interrupted(ctx context.Context, err error) error {
	return errors.Join(ctx.Err(), context.Cause(ctx), err)
}

// ask sends a request, and returns when the program has answered or ended. If ctx ends it cancels
// the request, if it can, and still waits for the answer.
func (r *Locker) ask(ctx context.Context, request stdio.Request) (answer stdio.Answer, err error) {
	over := r.p.Turn()
	defer over()
	request.Locker = r.id
	id, reply := r.p.Send(request)
	if r.p.Can(stdio.CanCancel) {
		stop := context.AfterFunc(ctx, func() { r.p.Cancel(id) })
		defer stop()
	}
	if answer, err = r.p.Await(reply, math.MaxInt64); err != nil {
		err = r.broken()
	}
	return answer, err
}

// broken returns why there is no answer. Unless the suite killed the program, it ends the trial,
// which is inconclusive.
func (r *Locker) broken() error {
	why := r.p.Failure()
	if !r.p.Killed() {
		r.t.Fatalf("%v", r.p.Blamed(why))
	}
	return fmt.Errorf("the program: %w", why)
}

// Result is an answer as an error of the contract.
func Result(answer stdio.Answer) error {
	var is error
	switch answer.Result {
	case stdio.OK:
		return nil
	case stdio.Held:
		is = locker.ErrHeld
	case stdio.Lost:
		is = locker.ErrLost
	case stdio.NotHeld:
		is = locker.ErrNotHeld
	case stdio.Cancelled:
		is = ErrGaveUp
	default:
		return errors.New(answer.Error)
	}
	if answer.Error == "" {
		return is
	}
	return &answeredError{is, answer.Error}
}

// answeredError is a result with words of its own.
type answeredError struct {
	is    error
	words string
}

func (e *answeredError) Error() string { return e.words }

func (e *answeredError) Unwrap() error { return e.is }

// ErrMissing is the error of a call that needs a capability which the program does not claim.
var ErrMissing = errors.New("the program does not claim it")

// ErrGaveUp is the program's, whose time was over or who was cancelled.
var ErrGaveUp = errors.New("the program gave up")

// ErrNoShares is said by a process whose Lockers have none.
var ErrNoShares = errors.New("what the process serves is no RWLocker")
