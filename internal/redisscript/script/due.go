package script

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/go-locker/locker/internal/clock"
)

// When a take is due, so that one that arrives late takes nothing.
//
// A TTL counts from when the request was sent, by the client's clock. The server can compare its own
// alone, so that a request says by that when it is due:
//
//  1. Each reply of a take brings the server's clock. A reading is how far that is ahead of ours, at
//     most one round trip too much: it counts from when the request was sent.
//  2. A request has two times by it. Until the first (TTL/100 + 2 ms, the allowance for drift) it
//     gets the whole TTL, until the second (TTL/4, or the end of its context) what is left, and then
//     nothing: LATE, by which a wrong reading is found out, and the take is sent once more.
//  3. Without a reading, or one younger than 100 TTLs, a request is due at 0: it is answered LATE, and the
//     answer brings the clock.
//
// Invariants. No hold lasts longer at the server than one TTL and the drift from when its request
// was sent, and its owner counts on no more than the server keeps (Due.Late). A wrong reading, as
// of another node, or from before the clock was set, shortens a hold, and lengthens none by more
// than a round trip. A lost reply leaves the reading as it was.

// epoch is what times are counted from.
var epoch = clock.Now()

// Clock has the latest reading of the server's clock, so that a take can say by it when it is due.
type Clock struct {
	mu     sync.Mutex
	latest Reading
}

// Reading is how far the server's clock was ahead of ours, in µs, and at most one round trip too
// much.
type Reading struct {
	ahead int64
	at    time.Time // zero: not known
}

// trusted is for how many TTLs a reading is used. Clocks whose rates differ by a ten-thousandth are
// by then apart by what a hold allows for drift, TTL/100.
const trusted = 100

// Reading returns the latest one.
func (c *Clock) Reading() Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.latest
}

// OnReply takes in a reading of the server's clock, in a reply to a request that was sent at sent.
func (c *Clock) OnReply(now int64, sent time.Time) Reading {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.latest = Reading{now - micros(sent), sent}
	return c.latest
}

// Now returns the time by the server's clock, if that is known.
func (c *Clock) Now() (now time.Time, known bool) {
	r := c.Reading()
	if r.at.IsZero() {
		return time.Time{}, false
	}
	return time.UnixMicro(r.ahead + micros(time.Now())), true
}

// micros returns a time of ours, in µs since epoch.
func micros(t time.Time) int64 { return t.Sub(epoch).Microseconds() }

// Due returns when a request for a lock of that TTL has to arrive that is sent at sent: too late
// already if the server's clock is not known. It is late when the allowance for drift has passed;
// and too late when half of the TTL would not be left when the answer is back, or nobody waits for
// that.
func (r Reading) Due(ctx context.Context, sent time.Time, ttl time.Duration) Due {
	if r.at.IsZero() || sent.Sub(r.at)/trusted > ttl {
		return Due{}
	}
	patience := ttl / 4
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline))
	}
	patience = max(patience, 0)
	whole := min(patience, ttl/100+2*time.Millisecond)
	by := r.ahead + micros(sent.Add(whole))
	return Due{min(max(by, 0), 1e16-1), (patience - whole).Microseconds()}
}

// Due is when a request has to arrive, by the server's clock in µs.
type Due struct {
	Whole int64 // until then it gets the whole TTL; of 16 digits at most
	Rest  int64 // for so long after that what is left of it
}

// Arg returns d as the takes have it, see lua/lib/take.lua. number is the token that is proposed to
// a node of Redlock; or else the place of an owner that waits, or 0 if it has none.
func (d Due) Arg(m *Mark, number int64) string {
	var all [96]byte
	text := appendDigits(all[:0], min(d.Whole, m.covered.Load()))
	text = appendDigits(text, d.Whole)
	text = strconv.AppendInt(text, number, 10)
	text = append(text, '/')
	text = strconv.AppendInt(text, d.Rest, 10)
	text = append(text, ':')
	return string(append(text, m.Tag...))
}

// digits are those of the times in a Due.
const digits = 16

// appendDigits appends n, which has as many digits at most, in as many.
func appendDigits(to []byte, n int64) []byte {
	var all [digits]byte
	written := strconv.AppendInt(all[:0], n, 10)
	return append(append(to, "0000000000000000"[len(written):]...), written...)
}

// Late returns what the script has taken off the TTL of a request that arrived at now, or a little
// more.
func (d Due) Late(now int64) time.Duration {
	return time.Duration(max(now-d.Whole, 0)) * time.Microsecond
}
