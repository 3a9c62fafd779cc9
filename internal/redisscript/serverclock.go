package redisscript

import (
	"context"
	"strconv"
	"sync"
	"time"
)

// serverClock has the latest reading of the server's clock, so that a take can say by it when it is
// due.
type serverClock struct {
	mu     sync.Mutex
	latest reading
}

// reading is how far the server's clock was ahead of ours, in µs, and at most one round trip too
// much.
type reading struct {
	ahead int64
	at    time.Time // zero: not known
}

// trusted is for how many TTLs a reading is used. Clocks whose rates differ by a ten-thousandth are
// by then apart by what a hold allows for drift, TTL/100.
const trusted = 100

func (s *serverClock) reading() reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest
}

// onReply takes in a reading of the server's clock, in a reply to a request that was sent at sent.
func (s *serverClock) onReply(now int64, sent time.Time) reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = reading{now - micros(sent), sent}
	return s.latest
}

// micros returns a time of ours, in µs since epoch.
func micros(t time.Time) int64 { return t.Sub(epoch).Microseconds() }

// due returns when a request for a lock of that TTL has to arrive that is sent at sent: too late
// already if the server's clock is not known. It is late when the allowance for drift has passed;
// and too late when half of the TTL would not be left when the answer is back, or nobody waits for
// that.
func (r reading) due(ctx context.Context, sent time.Time, ttl time.Duration) due {
	if r.at.IsZero() || sent.Sub(r.at)/trusted > ttl {
		return due{}
	}
	patience := ttl / 4
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline))
	}
	patience = max(patience, 0)
	whole := min(patience, ttl/100+2*time.Millisecond)
	by := r.ahead + micros(sent.Add(whole))
	return due{min(max(by, 0), 1e16-1), (patience - whole).Microseconds()}
}

// due is when a request has to arrive, by the server's clock in µs.
type due struct {
	whole int64 // until then it gets the whole TTL; of 16 digits at most
	rest  int64 // for so long after that what is left of it
}

// arg returns d as the takes have it, see lua/lib/take.lua. number is the token that is proposed to
// a node of Redlock; or else the place of an owner that waits, or 0 if it has none.
func (d due) arg(m *mark, number int64) string {
	var all [96]byte
	text := appendDigits(all[:0], min(d.whole, m.covered.Load()))
	text = appendDigits(text, d.whole)
	text = strconv.AppendInt(text, number, 10)
	text = append(text, '/')
	text = strconv.AppendInt(text, d.rest, 10)
	text = append(text, ':')
	return string(append(text, m.tag...))
}

// digits are those of the times in a due.
const digits = 16

// appendDigits appends n, which has as many digits at most, in as many.
func appendDigits(to []byte, n int64) []byte {
	var all [digits]byte
	written := strconv.AppendInt(all[:0], n, 10)
	return append(append(to, "0000000000000000"[len(written):]...), written...)
}

// late returns what the script has taken off the TTL of a request that arrived at now, or a little
// more.
func (d due) late(now int64) time.Duration {
	return time.Duration(max(now-d.whole, 0)) * time.Microsecond
}
