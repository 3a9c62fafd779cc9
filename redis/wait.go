package redis

import (
	"context"
	"fmt"
	"strconv"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/redisscript/script"
)

// DriverOption is an option of [NewDriver]: what concerns Redis alone.
type DriverOption func(*runner) error

// WaitReplicas makes every take and extension wait until n replicas of the server, or of the node
// that the name is on, have acknowledged it, by the WAIT command. If fewer do so within timeout, an
// attempt fails, and what it took is released. Lock makes up to three attempts, and returns an
// error that says how many replicas have acknowledged. Extend fails, and the old deadline stands.
// WAIT is sent with the request, so it costs no round trip. It costs the time that the replicas
// need, and all of timeout if there are too few. The timeout, of whole milliseconds, has to be
// shorter than the client's ReadTimeout.
//
// A failover then loses a lock less often, but still may: see docs/backends/redis.md. WaitReplicas
// is for a Client or a ClusterClient; any other client is ErrUnsupported.
func WaitReplicas(n int, timeout time.Duration) DriverOption {
	return func(r *runner) error {
		read, _, known := timeouts(r.rdb)
		if !known {
			return fmt.Errorf("%w: WaitReplicas with a %T: it has to be a Client or a ClusterClient", driver.ErrUnsupported, r.rdb)
		}
		if read > 0 && timeout >= read {
			return fmt.Errorf("WaitReplicas, or replica_timeout, of %v: must be shorter than the client's ReadTimeout, %v", timeout, read)
		}
		var err error
		r.replicas, err = script.NewReplicas(n, timeout)
		return err
	}
}

// sendAndWait sends calls in a pipeline to one server, and one WAIT behind them, on the same
// connection.
func (r *runner) sendAndWait(ctx context.Context, to pipelined, asking bool, calls []script.Call, replies []script.Reply) {
	written := &waitTimeout{ctx: ctx, asked: r.replicas, sent: r.replicas}
	wait := goredis.NewIntCmd(ctx, "wait", r.replicas.N, written)
	sendAll(ctx, to, asking, calls, replies, wait)
	acknowledged, err := wait.Result()
	written.sent.Acknowledged(calls, replies, acknowledged, err)
}

// waitTimeout is the argument of a WAIT: in milliseconds, and what is left of ctx when it is
// written.
type waitTimeout struct {
	ctx         context.Context
	asked, sent script.Replicas
}

// MarshalBinary is called by go-redis each time that it writes the argument.
func (w *waitTimeout) MarshalBinary() ([]byte, error) {
	w.sent = w.asked.Within(w.ctx)
	return strconv.AppendInt(nil, w.sent.Timeout.Milliseconds(), 10), nil
}
