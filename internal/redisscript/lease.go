package redisscript

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// lease is one owner: 128 random bits for each attempt to hold.
type lease struct {
	driver   *Driver
	waiter   waiter      // itself, while it waits for its grant
	keys     [3]any      // see keysOf
	shared   atomic.Bool // it is a share, or may be
	owner    string
	argOwner any // the same
	takes    *Script
	mark     *mark
	ttl      time.Duration
	metadata string
	direct   bool          // its requests are made by the goroutine that asks: Redlock bounds and counts them by itself
	there    bool          // the server has it, in its queue or as the holder, or may have it
	known    bool          // to the server, which has answered
	givenUp  *request      // a take that nobody waits for any more; nil: there is none
	token    atomic.Uint64 // 0: the grant was not answered
	until    atomic.Int64  // when it expires, in nanoseconds since epoch

	released sendings
	lost     atomic.Bool // said by the server to a release
}

// epoch is what the times of leases and servers are counted from.
var epoch = clock.Now()

// lasts records that a request which was sent at sent made the lease last ttl. Requests may be
// answered out of order.
func (l *lease) lasts(sent time.Time, ttl time.Duration) {
	until := int64(sent.Add(ttl).Sub(epoch))
	for old := l.until.Load(); until > old && !l.until.CompareAndSwap(old, until); {
		old = l.until.Load()
	}
}

// Token implements driver.Lease.
func (l *lease) Token() uint64 { return l.token.Load() }

// Validity implements driver.Lease.
func (l *lease) Validity() time.Duration {
	if !l.takeEnded() {
		return l.ttl // it may be granted now
	}
	return time.Duration(l.until.Load()) - clock.Since(epoch)
}

// send makes one call for l.
func (l *lease) send(ctx context.Context, script *Script, keys []any, args ...any) Reply {
	r := l.driver.sender.request(script, keys, args...)
	r.direct = l.direct
	timeout := l.ttl
	if script.Takes {
		timeout /= 2
	}
	reply, answered := l.driver.sender.send(ctx, timeout, r)
	if script.Takes && reply.MayHaveRun && !answered {
		l.givenUp = r
	}
	return reply
}

// Extend implements driver.Lease.
func (l *lease) Extend(ctx context.Context, ttl time.Duration) error {
	sent := clock.Now()
	script, keys := l.extension()
	return l.extended(l.send(ctx, script, keys, l.argOwner, l.driver.expiryArg(ttl)), sent, ttl)
}

// extension returns the script that extends l, and its keys.
func (l *lease) extension() (*Script, []any) {
	if l.shared.Load() {
		return extendShared, l.keys[:]
	}
	return extend, l.keys[:1]
}

// Downgrade implements driver.Downgrader.
func (l *lease) Downgrade(ctx context.Context) error {
	l.shared.Store(true)
	return lostUnlessOne(l.send(ctx, downgrade, l.keys[:], l.argOwner))
}

// extended takes in the reply to an extension that was sent at sent.
func (l *lease) extended(r Reply, sent time.Time, ttl time.Duration) error {
	err := lostUnlessOne(r)
	if err == nil {
		l.lasts(sent, ttl)
	}
	return err
}

// Release implements driver.Lease.
func (l *lease) Release(ctx context.Context) error {
	l.waitsNoMore()
	if !l.there {
		return nil
	}
	undone := false
	if r := l.givenUp; r != nil {
		var err error
		if undone, err = l.awaitTake(ctx); err != nil {
			return err
		}
		if reply := r.reply[0]; reply.Err != nil && !reply.MayHaveRun && !l.known {
			return nil
		}
	}
	if l.lost.Load() {
		return driver.ErrLost // asked again the server would take it for a reply that was lost
	}
	err := l.release(ctx, l.token.Load(), &l.released)
	if errors.Is(err, driver.ErrLost) {
		l.lost.Store(true)
		if undone {
			return nil
		}
	}
	return err
}

func (l *lease) release(ctx context.Context, token uint64, sent *sendings) error {
	script := release
	if l.shared.Load() {
		script = releaseShared
	}
	return lostUnlessOne(l.send(ctx, script, l.keys[:], l.argOwner, token, sent))
}

// takeEnded reports whether no take of l is under way that nobody waits for.
func (l *lease) takeEnded() bool {
	return l.givenUp == nil || l.givenUp.ended.Load()
}

// awaitFormer waits until no take of l is under way.
func (l *lease) awaitFormer(ctx context.Context) error {
	if l.takeEnded() {
		return nil
	}
	select {
	case <-l.givenUp.done:
		l.givenUp.done <- struct{}{}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// awaitTake waits until the take of l that was given up has ended. If that takes long, what it has done by then is undone
// beforehand: it holds others up.
func (l *lease) awaitTake(ctx context.Context) (undone bool, err error) {
	soon := time.NewTimer(overdue)
	defer soon.Stop()
	for {
		select {
		case <-l.givenUp.done:
			l.givenUp.done <- struct{}{} // for others who wait
			return undone, nil
		case <-ctx.Done():
			return false, errNoAnswer
		case <-soon.C:
			undone = l.release(ctx, 0, new(sendings)) == nil
		}
	}
}

// sendings is an argument of a request that says how often the request has been sent before, also
// by a client library that tries again by itself: it is asked anew for each.
type sendings struct{ n atomic.Int64 }

// MarshalBinary is called by the client library when it writes the argument.
func (s *sendings) MarshalBinary() ([]byte, error) {
	return strconv.AppendInt(nil, s.n.Add(1)-1, 10), nil
}

// NotRun implements Counter.
func (s *sendings) NotRun() { s.n.Add(-1) }

// Raise implements quorum.Candidate.
func (l *lease) Raise(ctx context.Context, token uint64) error {
	reply := l.send(ctx, raise, l.keys[:1], l.argOwner, token, l.mark.tag)
	if reply.Err == nil && reply.Value == any(int64(-1)) {
		return fmt.Errorf("%w: token %d is more than %v ahead of the server's clock, or ahead and its mark cannot be written", driver.ErrUnsupported, token, mostAhead)
	}
	err := lostUnlessOne(reply)
	if err == nil {
		l.token.Store(token)
	}
	return err
}
