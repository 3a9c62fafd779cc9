package redisscript

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/clock"
)

// Driver grants leases by the scripts. It implements locker.Driver but for Close, which is also about the
// adapter's client.
type Driver struct {
	runner Runner
	server serverClock
	hub    *hub
	sender *sender
	expiry atomic.Pointer[expiryOf] // the latest
}

// NewDriver makes a Driver that runs its scripts through r.
func NewDriver(r Runner) *Driver {
	d := &Driver{runner: r}
	d.sender = newSender(r.Run, r.Together())
	d.hub = newHub(r, d.decline)
	return d
}

// Close ends the subscriptions, has client close what the adapter has to, and returns when no goroutine of the Driver
// is left.
func (d *Driver) Close(client func() error) error {
	d.hub.close()
	err := client() // ends requests that hang
	d.sender.close()
	return err
}

// HeedsContext implements locker.ContextHeeder.
func (d *Driver) HeedsContext() bool { return true }

// Acquire tries once to take the lock, in one round trip.
func (d *Driver) Acquire(ctx context.Context, req locker.Request) (locker.Lease, error) {
	if err := d.CheckTTL(req.TTL); err != nil {
		return nil, err
	}
	l := d.newLease(req, "")
	a, err := d.ask(ctx, l, req, 0)
	return l.answered(a, err)
}

// newLease is one of a fresh owner, 128 random bits behind a prefix.
func (d *Driver) newLease(req locker.Request, prefix string) *lease {
	l := &lease{driver: d, ttl: req.TTL}
	l.keys, l.owner = keysAnd(req.Name, prefix, rand.Text())
	l.argOwner = l.owner
	return l
}

// Propose implements locker.Proposer.
func (d *Driver) Propose(ctx context.Context, req locker.Request, token uint64) (locker.RaisableLease, error) {
	if token == 0 || token >= 1<<tokenBits {
		return nil, fmt.Errorf("%w: proposed token %d: Redis takes 1 to 2^53-1", locker.ErrUnsupported, token)
	}
	if err := d.CheckTTL(req.TTL); err != nil {
		return nil, err
	}
	l := d.newLease(req, "")
	l.proposed = true
	a, err := d.ask(ctx, l, req, token)
	return l.answered(a, err)
}

// answered is what one attempt to take l came to.
func (l *lease) answered(a answer, err error) (locker.RaisableLease, error) {
	switch {
	case err == nil && a.status == granted:
		return l, nil
	case err == nil:
		return nil, locker.ErrHeld
	case a.status == unknown:
		return l, err
	default:
		return nil, err
	}
}

// Keep is KEEP of the scripts. That they are sent the sum spares the server to add it and print it.
const Keep = 24 * time.Hour

// expiry is after how many milliseconds the key of a lock of that TTL expires.
func expiry(ttl time.Duration) int64 { return ttl.Milliseconds() + Keep.Milliseconds() }

// expiryArg is expiry as an argument, which most often is the one of the request before.
func (d *Driver) expiryArg(ttl time.Duration) any {
	if e := d.expiry.Load(); e != nil && e.ttl == ttl {
		return e.arg
	}
	e := &expiryOf{ttl, expiry(ttl)}
	d.expiry.Store(e)
	return e.arg
}

type expiryOf struct {
	ttl time.Duration
	arg any
}

// answer is a reply to the acquire script.
type answer struct {
	status int64
	token  int64         // if granted
	left   time.Duration // if held: until it lapses, unless extended
	place  uint64        // if held: in the queue, for those who wait
	back   bool          // if held: the place was lost, and is there again
	now    int64         // by the server's clock, in µs
}

// tokenBits is how large tokens are: Lua keeps whole numbers up to there.
const tokenBits = 53

// ask runs the acquire script: l is granted, or held by another, or there is an error. The answer's
// status is unknown if the script may have run in spite of the error. number is a proposed token, or
// the place of an owner that waits.
//
// A request that arrives late gets what is left of the TTL, and one that arrives too late nothing. Where the server's clock is not
// known the first is too late in any case, and brings it.
func (d *Driver) ask(ctx context.Context, l *lease, req locker.Request, number uint64) (answer, error) {
	server := d.server.reading()
	for range 2 {
		sent := clock.Now()
		by := server.due(ctx, sent, req.TTL)
		reply := d.send(ctx, l, req.TTL/2, acquire, l.keys[:], acquireArgs{
			owner: l.argOwner, expires: d.expiryArg(req.TTL), number: number, due: by.String(), meta: req.Metadata,
		}.list())
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

// grantedNow is the answer of a token alone, which is the server's clock.
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

// CheckTTL refuses what Redis cannot express: parts of a millisecond.
func (d *Driver) CheckTTL(ttl time.Duration) error {
	if ttl%time.Millisecond != 0 {
		return fmt.Errorf("%w: TTL %v: Redis takes whole milliseconds", locker.ErrUnsupported, ttl)
	}
	return nil
}

// Guarantees is what a Redis server promises.
func (d *Driver) Guarantees() locker.Guarantees {
	return locker.Guarantees{
		locker.Exclusive:      {Level: locker.Conditional, Condition: "while the server's clock is sane and it evicts no keys"},
		locker.Failover:       {Level: locker.No, Condition: "replication is asynchronous, and a failover can lose the lock"},
		locker.Fencing:        {Level: locker.Yes},
		locker.FencingDurable: {Level: locker.Conditional, Condition: "while clocks are sane"},
		locker.Ordered:        {Level: locker.Conditional, Condition: "while subscriptions and the primary hold"},
		locker.Woken:          {Level: locker.Yes},
	}
}

// lease is one owner: 128 random bits for each attempt to hold.
type lease struct {
	driver   *Driver
	waiter   waiter // itself, while it waits for its grant
	keys     [2]any // see keysOf
	owner    string
	argOwner any // the same
	ttl      time.Duration
	proposed bool          // to a caller who bounds its requests by itself
	known    bool          // to the server, which has answered
	givenUp  *errand       // a take that nobody waits for any more; nil: there is none
	token    atomic.Uint64 // 0: the grant was not answered
	until    atomic.Int64  // when it lapses, in nanoseconds since epoch

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

// Token implements locker.Lease.
func (l *lease) Token() uint64 { return l.token.Load() }

// Validity implements locker.Lease.
func (l *lease) Validity() time.Duration {
	if !l.landed() {
		return l.ttl // it may be granted now
	}
	return time.Duration(l.until.Load()) - clock.Since(epoch)
}

// Extend implements locker.Lease.
func (l *lease) Extend(ctx context.Context, ttl time.Duration) error {
	sent := clock.Now()
	return l.extended(l.driver.send(ctx, l, l.ttl, extend, l.keys[:1], extendArgs{l.argOwner, l.driver.expiryArg(ttl)}.list()), sent, ttl)
}

// Release implements locker.Lease.
func (l *lease) Release(ctx context.Context) error {
	undone := false
	if l.givenUp != nil {
		var err error
		if undone, err = l.land(ctx); err != nil {
			return err
		}
		if r := l.givenUp.reply; r.Err != nil && !r.MayHaveRun && !l.known {
			return nil
		}
	}
	if l.lost.Load() {
		return locker.ErrLost // asked again the server would take it for a reply that was lost
	}
	err := lostUnlessOne(l.driver.send(ctx, l, l.ttl, release, l.keys[:], releaseArgs{l.argOwner, l.token.Load(), &l.released}.list()))
	if errors.Is(err, locker.ErrLost) {
		l.lost.Store(true)
		if undone {
			return nil
		}
	}
	return err
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

// Raise implements locker.RaisableLease.
func (l *lease) Raise(ctx context.Context, token uint64) error {
	reply := l.driver.send(ctx, l, l.ttl, raise, l.keys[:1], raiseArgs{l.argOwner, token}.list())
	if reply.Err == nil && reply.Value == any(int64(-1)) {
		return fmt.Errorf("%w: token %d is more than %v ahead of the server's clock", locker.ErrUnsupported, token, Keep/2)
	}
	err := lostUnlessOne(reply)
	if err == nil {
		l.token.Store(token)
	}
	return err
}

func lostUnlessOne(r Reply) error {
	if r.Err != nil {
		return r.Err
	}
	switch n, ok := r.Value.(int64); {
	case !ok:
		return fmt.Errorf("unexpected reply to a script: %v", r.Value)
	case n != 1:
		return locker.ErrLost
	default:
		return nil
	}
}
