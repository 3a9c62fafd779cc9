package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/internal/noanswer"
)

// errNoAnswer is the error of a request that the backend has not answered.
var errNoAnswer error = noanswer.Error("the backend has not answered in time")

// request is the context of one request to the backend. It has the values of the caller's context.
// It ends with that context, with the Client, after a timeout, or by its method end. The caller's
// deadline is not its own: people override Done and forget Deadline.
//
// A backend in this process never waits for its end. So the timer, and all else that ends it, is
// made when Done is first called.
type request struct {
	caller context.Context
	client context.Context
	until  time.Time
	over   atomic.Bool // end was called

	make   sync.Once
	made   atomic.Bool     // the rest is there
	own    context.Context // of package context, so that one derived from it costs no goroutine
	cancel context.CancelFunc
	forget func() bool // has caller not end own any more; nil if caller never ends
}

// newRequest returns the context of a request. The caller calls end when the request has returned.
func newRequest(caller, client context.Context, timeout time.Duration) *request {
	return new(request).begin(caller, client, timeout)
}

// begin makes r, which is zero, what newRequest returns.
func (r *request) begin(caller, client context.Context, timeout time.Duration) *request {
	r.caller, r.client, r.until = caller, client, time.Now().Add(timeout)
	return r
}

// end ends the context. A Done that comes later, or is under way, sees over.
func (r *request) end() {
	r.over.Store(true)
	if r.made.Load() {
		r.undo()
	}
}

// undo ends what Done has made.
func (r *request) undo() {
	if r.forget != nil {
		r.forget()
	}
	r.cancel()
}

// Cancellable reports whether the caller's context may end. If not, a Driver need not watch it.
func (r *request) Cancellable() bool { return r.caller.Done() != nil }

// Deadline implements [context.Context].
func (r *request) Deadline() (time.Time, bool) { return r.until, true }

// Done implements [context.Context]. It holds no lock that end wants: a caller's context that is a
// hold's may find here that the hold is lost, which ends the request.
func (r *request) Done() <-chan struct{} {
	r.make.Do(func() {
		r.own, r.cancel = context.WithDeadline(r.client, r.until)
		if r.caller.Done() != nil {
			r.forget = context.AfterFunc(r.caller, r.cancel)
			if r.caller.Err() != nil {
				r.cancel() // AfterFunc takes a moment, and a caller may have seen Err already
			}
		}
		r.made.Store(true)
	})
	if r.over.Load() {
		r.undo()
	}
	return r.own.Done()
}

// Err implements [context.Context].
func (r *request) Err() error {
	switch {
	case r.made.Load():
		return r.own.Err()
	case r.over.Load(), r.caller.Err() != nil, r.client.Err() != nil:
		return context.Canceled
	case !time.Now().Before(r.until):
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// Value implements [context.Context].
func (r *request) Value(key any) any {
	if r.made.Load() {
		if v := r.own.Value(key); v != nil { // by which package context finds its own
			return v
		}
	}
	return r.caller.Value(key)
}

// explain returns err, the outcome of the request. If err only says that the request's own context
// has ended, or one that the Driver derived from it, explain returns errNoAnswer, because the
// user's context has not.
func (r *request) explain(err error) error {
	if err == nil {
		return nil
	}
	over := r.Err()
	if over == nil && !time.Now().Before(r.until) {
		over = context.DeadlineExceeded // a Driver has looked at the clock before our timer fired
	}
	switch {
	case err == over || err == context.DeadlineExceeded: //nolint:errorlint // one that wraps it has more to say
		return errNoAnswer
	case over == nil || !errors.Is(err, over):
		return err
	default:
		return fmt.Errorf("%w: %v", errNoAnswer, err) //nolint:errorlint // whose end is none of the user's business
	}
}

// silent reports whether err is that of a request which was not answered, and says nothing else.
func silent(err error) bool {
	_, ok := errors.AsType[noanswer.Error](err)
	return ok
}
