package script

import (
	"context"
	"fmt"
	"time"
)

// Replicas is how many replicas have to acknowledge what a script grants. A Runner that is told so
// sends WAIT with the script, on the same connection.
type Replicas struct {
	N       int
	Timeout time.Duration
}

// NewReplicas returns n replicas and how long they have, or an error if that cannot be asked of a
// server.
func NewReplicas(n int, timeout time.Duration) (Replicas, error) {
	switch {
	case n < 1:
		return Replicas{}, fmt.Errorf("WaitReplicas for %d replicas: must be at least 1", n)
	case timeout <= 0 || timeout%time.Millisecond != 0:
		return Replicas{}, fmt.Errorf("WaitReplicas for %v: must be whole milliseconds, and above 0", timeout)
	default:
		return Replicas{N: n, Timeout: timeout}, nil
	}
}

// Within returns r for a WAIT that is sent now. A quarter of what is left of ctx is for the answer
// to come back. WAIT 0 would be for ever.
func (r Replicas) Within(ctx context.Context) Replicas {
	if deadline, ok := ctx.Deadline(); ok {
		left := max(time.Until(deadline)*3/4, time.Millisecond)
		r.Timeout = min(r.Timeout, left.Truncate(time.Millisecond))
	}
	return r
}

// Check returns an error if reply, of a script that Grants, was a grant that too few have
// acknowledged. The script has run.
func (r Replicas) Check(reply any, acknowledged int64) error {
	switch r := reply.(type) {
	case []any:
		if len(r) > 0 {
			reply = r[0]
		}
	case string, []byte: // a token
		reply = int64(Granted)
	}
	if reply != any(int64(Granted)) || acknowledged >= int64(r.N) {
		return nil
	}
	return fmt.Errorf("%d of %d replicas have acknowledged within %v", acknowledged, r.N, r.Timeout)
}
