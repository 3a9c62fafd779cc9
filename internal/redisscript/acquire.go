package redisscript

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// answer is a reply to the acquire script.
type answer struct {
	status int64
	token  int64         // if granted
	left   time.Duration // if held: until it expires, unless extended
	place  uint64        // if held: in the queue, for those who wait
	back   bool          // if held: the place was lost, and is there again
	now    int64         // by the server's clock, in µs
}

// tokenBits is how large tokens are: Lua keeps whole numbers up to there.
const tokenBits = 53

// take runs the acquire script: l is granted, or held by another, or there is an error. The answer's
// status is unknown if the script may have run in spite of the error. number is a proposed token, or
// the place of an owner that waits.
//
// A request that arrives late gets what is left of the TTL, and one that arrives too late nothing. Where the server's clock is not
// known the first is too late in any case, and brings it.
func (l *lease) take(ctx context.Context, req driver.Request, number uint64) (answer, error) {
	d := l.driver
	server := d.server.reading()
	for range 2 {
		sent := clock.Now()
		by := server.due(ctx, sent, req.TTL)
		r := l.request(acquire, l.keys[:], acquireArgs{
			owner: l.argOwner, expires: d.expiryArg(req.TTL), number: number, due: by.String(), meta: req.Metadata,
		}.list())
		reply, answered := d.sender.send(ctx, req.TTL/2, r)
		if reply.MayHaveRun && !answered {
			l.givenUp = r
		}
		if reply.MayHaveRun {
			return answer{status: unknown}, reply.Err
		}
		if reply.Err != nil {
			return answer{status: late}, reply.Err
		}
		a, err := parseAnswer(reply.Value)
		if err != nil {
			return a, err
		}
		l.known = true
		server = d.server.saw(a.now, sent)
		switch a.status {
		case granted:
			l.token.Store(uint64(a.token))
			late := by.late(a.now)
			l.lasts(sent, req.TTL-late)
			if by.whole > 0 && late > clock.Since(sent) {
				// Nothing arrives later than its answer: the reading was of another server, as in a Cluster, or of before the clock was set.
				_ = l.Extend(ctx, req.TTL) // if that fails, the hold is shorter
			}
			return a, nil
		case held:
			return a, nil
		}
		// Late by an estimate of the server's clock that may be wrong: this reply has brought it up to date.
	}
	return answer{status: late}, errors.New("the request reached the server after its time")
}

func parseAnswer(reply any) (answer, error) {
	var all []any
	switch r := reply.(type) {
	case string:
		return grantedNow(r)
	case []byte:
		return grantedNow(string(r))
	case []any:
		all = r
	}
	if len(all) == 0 {
		return unexpected(reply)
	}
	status, ok := all[0].(int64)
	a, r := answer{status: status}, recordOf(acquireReplies[status], all)
	a.now = value[int64](r, "now")
	switch {
	case !ok || r.bad:
	case status == granted:
		a.token = value[int64](r, "token")
		r.bad = r.bad || a.token <= 0 || a.token >= 1<<tokenBits
	case status == held:
		a.left = time.Duration(value[int64](r, "left")) * time.Millisecond
		a.place, a.back = uint64(value[int64](r, "place")), value[int64](r, "back") == 1
	}
	if !ok || r.bad {
		return unexpected(reply)
	}
	return a, nil
}

// grantedNow returns the answer of a token alone, which is the server's clock.
func grantedNow(text string) (answer, error) {
	token, err := strconv.ParseUint(text, 10, tokenBits)
	if err != nil || token == 0 {
		return unexpected(text)
	}
	return answer{status: granted, token: int64(token), now: int64(token)}, nil
}

func unexpected(reply any) (answer, error) {
	return answer{status: unknown}, fmt.Errorf("unexpected reply to the acquire script: %v", reply)
}

// taken returns what one attempt to take l came to.
func (l *lease) taken(a answer, err error) (driver.RaisableLease, error) {
	switch {
	case err == nil && a.status == granted:
		return l, nil
	case err == nil:
		return nil, driver.ErrHeld
	case a.status == unknown:
		return l, err
	default:
		return nil, err
	}
}
