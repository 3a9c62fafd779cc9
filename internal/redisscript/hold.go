package redisscript

import (
	"strconv"
	"sync/atomic"

	"github.com/go-locker/locker/internal/clock"
)

// hold is what is known of a claim's lease. Any goroutine reads and writes it: a renewal may be
// answered while the claim is released, and requests out of order.
type hold struct {
	shared   atomic.Bool   // it is a share, or may be
	token    atomic.Uint64 // 0: the grant was not answered
	until    clock.Deadline
	lost     atomic.Bool // said by the server to a release
	releases sendings
}

// sendings is an argument of a request that says how often the request has been sent before, also
// by a client library that tries again by itself: it is asked anew for each.
type sendings struct{ n atomic.Int64 }

// MarshalBinary implements script.Counter.
func (s *sendings) MarshalBinary() ([]byte, error) {
	n := s.n.Add(1) - 1
	if n == 0 {
		return zero, nil
	}
	return strconv.AppendInt(nil, n, 10), nil
}

var zero = []byte("0")

// RedisArg implements script.Counter.
func (s *sendings) RedisArg() any { return s.n.Add(1) - 1 }

// NotRun implements script.Counter.
func (s *sendings) NotRun() { s.n.Add(-1) }
