package etcd

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/noanswer"
)

// errSessionEnded: the lease of etcd's is gone, or may be by now, and with it all that was on it.
var errSessionEnded = fmt.Errorf("the etcd session ended: %w", rpctypes.ErrLeaseNotFound)

// sessionEnded reports whether a session's lease is gone by a server's answer, or by our clock.
func sessionEnded(err error) bool { return errors.Is(err, rpctypes.ErrLeaseNotFound) }

// refused reports whether the server says by err that it has not done, and will not do, what was
// asked. All other errors leave that open, "database space exceeded" too: the request that exceeds
// it is done all the same.
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

const (
	maxTries = 4 // of a request
	// reconnects is how long the client library gets to notice that connections are broken: there
	// may be one to each server.
	reconnects = 5 * time.Millisecond
)

// request is sent, and sent again while it is not answered.
type request[T any] struct {
	driver  *backend
	send    func(ctx context.Context) (T, error)
	ctx     context.Context // of all tries: it ends with the first answer
	cancel  context.CancelFunc
	tries   sync.WaitGroup // in flight
	began   time.Time      // of package clock
	silence time.Duration  // after which a try closes silent connections

	mu       sync.Mutex
	left     int // tries that may still be made
	patience time.Duration
	timer    *time.Timer // for a try beside those in flight
	answered bool
	over     bool // no more tries are made
	answer   T
	err      error // of the answer, or of the latest try
}

// ask makes a request, and returns the first answer. Tries are hedged: if no answer comes for a while,
// the request is sent again while the first goes on, and if its connection breaks, on another: at the
// next member of the cluster, if there are several. After a third of the time that there is,
// connections are closed on which nothing has come back meanwhile. So send may be called by several
// goroutines, and has to be idempotent. No call goes on when ask has returned.
func ask[T any](ctx context.Context, d *backend, send func(ctx context.Context) (T, error)) (T, error) {
	r := &request[T]{driver: d, send: send, began: clock.Now(), silence: time.Second, left: maxTries, patience: d.patience(ctx)}
	if deadline, ok := ctx.Deadline(); ok {
		r.silence = time.Until(deadline) / 3
	}
	r.ctx, r.cancel = context.WithCancel(undated{ctx})
	defer r.cancel()
	r.try()
	r.mu.Lock()
	r.over = true
	r.timer.Stop()
	r.mu.Unlock()
	r.tries.Wait()
	if over := ctx.Err(); over != nil && !r.answered && !errors.Is(r.err, over) {
		r.err = over
	}
	return r.answer, asOutage(r.err)
}

// asOutage returns err, marked as an outage if the server is unreachable, or serves nobody, for now.
// gRPC has one code for all that keeps a connection from being made, and says only in the text that
// waiting is in vain.
func asOutage(err error) error {
	code := status.Code(err)
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		code = e.Code()
	}
	inVain := func(why string) bool { return strings.Contains(err.Error(), why) }
	if code != codes.Unavailable || slices.ContainsFunc([]string{"tls: ", "x509: ", "no such host"}, inVain) {
		return err
	}
	return &noanswer.Later{Err: err}
}

// try makes the request, and makes it again if its connection breaks.
func (r *request[T]) try() {
	for r.begin() {
		sent := clock.Now()
		answer, err := r.send(r.ctx)
		if !r.end(answer, err, clock.Since(sent)) || clock.Sleep(r.ctx, reconnects) != nil {
			return
		}
	}
}

// begin counts a try, and plans the next one beside it. It returns false if there is to be none.
func (r *request[T]) begin() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered || r.over {
		return false
	}
	if c, since := r.driver.conns, clock.Since(r.began); c != nil && since >= r.silence && c.leave(since/10*9) {
		r.left++ // the requests on them fail
	}
	if r.left == 0 {
		return false
	}
	r.left--
	r.tries.Add(1)
	if r.timer == nil {
		r.timer = time.AfterFunc(r.patience, r.try)
	} else {
		r.timer.Reset(r.patience)
	}
	r.patience += r.patience / 2
	return true
}

// end takes in the outcome of a try, and reports whether its connection was broken.
func (r *request[T]) end(answer T, err error, took time.Duration) (broken bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.tries.Done()
	if r.answered {
		return false
	}
	if r.err = explain(r.ctx, err); err == nil || refused(err) {
		r.answered, r.answer = true, answer
		r.driver.latency.note(took)
		r.cancel()
	}
	return status.Code(err) == codes.Unavailable
}

// patience returns how long a request may take before it is made again, for a call that is to end
// with ctx. With a user the etcd client asks for a token before each renewal, which costs the
// server a tenth of a second of computing. It goes on with that when nobody waits any more: to ask
// again soon would make a busy one busier.
func (d *backend) patience(ctx context.Context) time.Duration {
	const least, most = 150 * time.Millisecond, time.Second
	left, p := most*10, most
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
		p = min(max(left/10, least), most)
	}
	if d.cli.Username != "" {
		p = max(p, left/3)
	}
	return max(p, min(2*d.latency.now(), left*4/5))
}

// latency is how long servers have taken to answer lately: a slow server is not asked twice. It is that
// of the slowest answer, with a half-life of two seconds, whatever the number of fast ones: bursts of
// requests are each answered slowly.
type latency struct {
	mu   sync.Mutex
	took time.Duration
	at   time.Time
}

func (l *latency) now() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.decayed(clock.Now())
}

// decayed is what is left of the latency at a time. The caller holds l.mu.
func (l *latency) decayed(now time.Time) time.Duration {
	return time.Duration(float64(l.took) * math.Exp2(-now.Sub(l.at).Seconds()/2))
}

func (l *latency) note(took time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := clock.Now(); took >= l.decayed(now) {
		l.took, l.at = took, now
	}
}

// undated is a context without the deadline, at which it ends all the same. gRPC would send that
// along, and the server keep it a second time, which makes a pair of requests slower by a
// twentieth.
type undated struct{ context.Context }

// Deadline implements [context.Context].
func (undated) Deadline() (deadline time.Time, ok bool) { return time.Time{}, false }

// explain returns err, a request's. If that is the end of its ctx it also matches that, and says
// what was wrong with the connection.
func explain(ctx context.Context, err error) error {
	switch s, over := status.Convert(err), ctx.Err(); {
	case over == nil || s.Code() != codes.DeadlineExceeded && s.Code() != codes.Canceled:
		return err
	case strings.HasPrefix(s.Message(), over.Error()):
		return over
	default:
		return fmt.Errorf("%w: %s", over, s.Message())
	}
}

// kvClient makes transactions. The client's own would not say what was wrong with the connection.
type kvClient struct{ etcdserverpb.KVClient }

// Txn implements [etcdserverpb.KVClient].
func (c kvClient) Txn(ctx context.Context, req *etcdserverpb.TxnRequest, opts ...grpc.CallOption) (*etcdserverpb.TxnResponse, error) {
	resp, err := c.KVClient.Txn(ctx, req, opts...)
	return resp, explain(ctx, err)
}

// commit makes a transaction of the conditions, and of what to do if they are true or not.
func (d *backend) commit(ctx context.Context, conditions []clientv3.Cmp, then, otherwise []clientv3.Op) (*clientv3.TxnResponse, error) {
	txn := clientv3.OpTxn(conditions, then, otherwise)
	return ask(ctx, d, func(ctx context.Context) (*clientv3.TxnResponse, error) {
		resp, err := d.kv.Do(ctx, txn)
		return resp.Txn(), err
	})
}
