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
}

// NewDriver makes a Driver that runs its scripts through r.
func NewDriver(r Runner) *Driver {
	d := &Driver{runner: r}
	d.hub = newHub(r, d.decline)
	return d
}

// Close ends the subscriptions, and returns when no goroutine of the Driver is left.
func (d *Driver) Close() { d.hub.close() }

// Acquire tries once to take the lock, in one round trip.
func (d *Driver) Acquire(ctx context.Context, req locker.Request) (locker.Lease, error) {
	return d.acquire(ctx, req, 0)
}

// Propose implements locker.Proposer.
func (d *Driver) Propose(ctx context.Context, req locker.Request, token uint64) (locker.RaisableLease, error) {
	if token == 0 || token >= 1<<53 {
		return nil, fmt.Errorf("%w: proposed token %d: Redis takes 1 to 2^53-1", locker.ErrUnsupported, token)
	}
	return d.acquire(ctx, req, token)
}

func (d *Driver) acquire(ctx context.Context, req locker.Request, token uint64) (locker.RaisableLease, error) {
	if err := d.CheckTTL(req.TTL); err != nil {
		return nil, err
	}
	l := &lease{driver: d, keys: keysOf(req.Name), owner: rand.Text()}
	a, err := d.ask(ctx, l, req, token)
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

// keep is KEEP of the scripts. That they are sent the sum spares the server to add it and print it.
const keep = 24 * time.Hour

// expiry is after how many milliseconds the key of a lock of that TTL expires.
func expiry(ttl time.Duration) int64 { return ttl.Milliseconds() + keep.Milliseconds() }

// answer is a reply to the acquire script.
type answer struct {
	status int64
	token  int64         // if granted
	left   time.Duration // if held: until it lapses, unless extended
	place  uint64        // if held: in the queue, for those who wait
	back   bool          // if held: the place was lost, and is there again
	now    int64         // by the server's clock, in µs
}

// What the acquire script returns first, and what its answer is if its reply is lost.
const (
	unknown = -2
	late    = -1
	held    = 0
	granted = 1
)

// ask runs the acquire script: l is granted, or held by another, or there is an error. The answer's
// status is unknown if the script may have run in spite of the error. number is a proposed token, or
// the place of an owner that waits.
func (d *Driver) ask(ctx context.Context, l *lease, req locker.Request, number uint64) (answer, error) {
	for range 2 {
		sent := clock.Now()
		reply, mayHaveRun, err := d.runner.RunOnce(ctx, acquire, l.keys,
			l.owner, expiry(req.TTL), number, d.server.notAfter(ctx, sent, req.TTL), req.Metadata)
		if mayHaveRun {
			return answer{status: unknown}, err
		}
		if err != nil {
			return answer{status: late}, err
		}
		a, err := parseAnswer(reply)
		if err != nil {
			return a, err
		}
		d.server.saw(a.now, sent)
		switch a.status {
		case granted:
			l.token.Store(uint64(a.token))
			l.lasts(sent, req.TTL)
			return a, nil
		case held:
			return a, nil
		}
		// Late by an estimate of the server's clock that may be wrong: this reply has brought it up to date.
	}
	return answer{status: late}, errors.New("the request reached the server after its time")
}

func parseAnswer(reply any) (answer, error) {
	var n []int64
	if r, ok := reply.([]any); ok {
		for _, v := range r {
			if i, ok := v.(int64); ok {
				n = append(n, i)
			}
		}
		if len(n) != len(r) {
			n = nil
		}
	}
	switch {
	case len(n) == 3 && n[0] == granted:
		return answer{status: granted, token: n[1], now: n[2]}, nil
	case len(n) == 3 && n[0] == late:
		return answer{status: late, now: n[2]}, nil
	case len(n) == 5 && n[0] == held:
		left := time.Duration(n[1]) * time.Millisecond
		return answer{status: held, left: left, now: n[2], place: uint64(n[3]), back: n[4] == 1}, nil
	default:
		return answer{status: unknown}, fmt.Errorf("unexpected reply to the acquire script: %v", reply)
	}
}

// ExtendAll implements locker.BatchExtender.
func (d *Driver) ExtendAll(ctx context.Context, leases []locker.Lease, ttl time.Duration) []error {
	errs := make([]error, len(leases))
	calls := make([]Call, len(leases))
	for i, x := range leases {
		l := x.(*lease)
		calls[i] = Call{Keys: l.keys[:1], Args: []any{l.owner, expiry(ttl)}}
	}
	sent := clock.Now()
	for i, r := range d.runner.RunAll(ctx, extend, calls) {
		errs[i] = lostUnlessOne(r.Value, r.Err)
		if errs[i] == nil {
			leases[i].(*lease).lasts(sent, ttl)
		}
	}
	return errs
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
		locker.Exclusive:      {Level: locker.Conditional, Condition: "while the server's clock is sane"},
		locker.Failover:       {Level: locker.No, Condition: "replication is asynchronous, and a failover can lose the lock"},
		locker.Fencing:        {Level: locker.Yes},
		locker.FencingDurable: {Level: locker.Conditional, Condition: "while clocks are sane"},
		locker.Ordered:        {Level: locker.Conditional, Condition: "while subscriptions and the primary hold"},
		locker.Woken:          {Level: locker.Yes},
	}
}

// lease is one owner: 128 random bits for each attempt to hold.
type lease struct {
	driver *Driver
	keys   []string
	owner  string
	token  atomic.Uint64 // 0: the grant was not answered
	until  atomic.Int64  // when it lapses, in nanoseconds since epoch

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
	return time.Duration(l.until.Load()) - clock.Since(epoch)
}

// Extend implements locker.Lease.
func (l *lease) Extend(ctx context.Context, ttl time.Duration) error {
	sent := clock.Now()
	err := lostUnlessOne(l.driver.runner.Run(ctx, extend, l.keys[:1], l.owner, expiry(ttl)))
	if err == nil {
		l.lasts(sent, ttl)
	}
	return err
}

// Release implements locker.Lease.
func (l *lease) Release(ctx context.Context) error {
	if l.lost.Load() {
		return locker.ErrLost // asked again the server would take it for a reply that was lost
	}
	err := lostUnlessOne(l.driver.runner.Run(ctx, release, l.keys, l.owner, l.token.Load(), &l.released))
	if errors.Is(err, locker.ErrLost) {
		l.lost.Store(true)
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
	err := lostUnlessOne(l.driver.runner.Run(ctx, raise, l.keys[:1], l.owner, token))
	if err == nil {
		l.token.Store(token)
	}
	return err
}

func lostUnlessOne(reply any, err error) error {
	if err != nil {
		return err
	}
	switch n, ok := reply.(int64); {
	case !ok:
		return fmt.Errorf("unexpected reply to a script: %v", reply)
	case n != 1:
		return locker.ErrLost
	default:
		return nil
	}
}

// serverClock estimates the server's clock, so that a take can carry a not-after by it: a request that
// the network delivers after everyone has given up on it must not take the lock.
type serverClock struct {
	ahead atomic.Int64 // of ours, in µs, and at most one round trip too much; 0: not known
}

// saw takes in a reading of the server's clock, in a reply to a request that was sent at sent.
func (s *serverClock) saw(now int64, sent time.Time) {
	s.ahead.Store(now - sent.Sub(epoch).Microseconds())
}

// notAfter is when, by the server's clock in µs, nobody waits any more for the request that is
// sent at sent; 0 if the server's clock is not known yet.
func (s *serverClock) notAfter(ctx context.Context, sent time.Time, ttl time.Duration) int64 {
	ahead := s.ahead.Load()
	if ahead == 0 {
		return 0
	}
	patience := ttl
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline))
	}
	return ahead + (sent.Sub(epoch) + patience).Microseconds()
}
