package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/outage"
)

// errSessionEnded: the lease of etcd's is gone, or may be by now, and with it all that was on it.
var errSessionEnded = errors.New("the etcd session ended: its lease expired or was revoked")

// errRemoved: the session is there, and our key is not.
var errRemoved = errors.New("somebody removed our key from the queue")

// errNoAnswer: what the server has done is not known.
var errNoAnswer = error(outage.NoAnswer("etcd has not answered in time"))

// refused reports whether the server says by err that it has not done, and will not do, what was asked. All other errors leave
// that open, "database space exceeded" too: the request that exceeds it is done all the same.
func refused(err error) bool {
	e, ok := errors.AsType[rpctypes.EtcdError](err)
	if !ok {
		return false
	}
	switch e.Code() {
	case codes.InvalidArgument, codes.PermissionDenied, codes.Unauthenticated,
		codes.FailedPrecondition, codes.NotFound, codes.OutOfRange:
		return true
	default:
		return false
	}
}

// explain returns the error of a request that was made under rctx, a request's context within ctx.
func explain(ctx, rctx context.Context, err error) error {
	silence := errNoAnswer
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		silence = ctx.Err()
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return fmt.Errorf("%w: %w", errSessionEnded, err)
	case rctx.Err() == nil:
		return err
	}
	// Without err itself: if the caller's context has not ended, the error must not match its error.
	if r := requestOf(rctx); r != nil && r.message.Load() != nil {
		return fmt.Errorf("%w: %s", silence, *r.message.Load())
	}
	return silence
}

// request is the context of a request. It has no deadline that gRPC is told: that would be sent
// along, and be kept a second time by the server, which makes a pair of requests slower by a
// twentieth.
type request struct {
	context.Context
	// message is the request's own error, which the etcd client replaces by its context's. It says what is wrong with
	// the connection.
	message atomic.Pointer[string]
}

type requestKey struct{}

// Deadline hides that of the outer context.
func (r *request) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// Value returns the request for requestKey.
func (r *request) Value(key any) any {
	if key == (requestKey{}) {
		return r
	}
	return r.Context.Value(key)
}

// within makes the context of a request, which the Outage ends.
func within(ctx context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	return &request{Context: ctx}, cancel
}

// requestOf returns the request that ctx is of, or nil.
func requestOf(ctx context.Context) *request {
	r, _ := ctx.Value(requestKey{}).(*request)
	return r
}

// keepDetail is an interceptor of the clients that Open makes. It keeps what is wrong with the connection, which the end of the
// request's own context does not tell.
func keepDetail(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	message := status.Convert(err).Message()
	over := strings.HasPrefix(message, context.Canceled.Error()) || strings.HasPrefix(message, context.DeadlineExceeded.Error())
	if r := requestOf(ctx); r != nil && err != nil && !over {
		r.message.Store(&message)
	}
	return err
}

// asLost returns err for the holder of a lease.
func asLost(err error) error {
	if errors.Is(err, errSessionEnded) {
		return fmt.Errorf("%w: %w", driver.ErrLost, err)
	}
	return err
}

// firstPatience returns how long a request may take at first, see [outage.Outage].
func firstPatience(ttl time.Duration) time.Duration {
	return min(max(ttl/20, 150*time.Millisecond), time.Second)
}

// newOutage rides out an outage for a call. With a user the etcd client asks for a token before each renewal, which costs the
// server a tenth of a second of computing. It goes on with that when nobody waits any more: to ask again soon would make a busy
// one busier.
func (d *Driver) newOutage(ttl time.Duration) *outage.Outage {
	patience := firstPatience(ttl)
	if d.cli.Username != "" {
		patience = max(patience, ttl/6)
	}
	return &outage.Outage{
		TTL: ttl, Answered: func(error) {}, Patience: patience, Beside: &d.latency,
		Within: within, Explain: explain, Final: final, Silence: errNoAnswer,
	}
}

// ask returns the first answer to f, which is made again as [outage.Outage.Ask] does.
func ask[T any](ctx context.Context, o *outage.Outage, f func(ctx context.Context) (T, error)) (T, error) {
	var first struct {
		answer T
		taken  atomic.Bool
	}
	err := o.Ask(ctx, func(ctx context.Context) error {
		answer, err := f(ctx)
		if err == nil && first.taken.CompareAndSwap(false, true) {
			first.answer = answer
		}
		return err
	})
	return first.answer, err
}

// final reports whether err is an answer that asking again does not change.
func final(err error) bool {
	return errors.Is(err, errSessionEnded) || errors.Is(err, driver.ErrUnsupported) || errors.Is(err, driver.ErrClosed) || refused(err)
}
