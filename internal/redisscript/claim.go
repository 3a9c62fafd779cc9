package redisscript

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/redisscript/script"
	"github.com/go-locker/locker/internal/redisscript/send"
	"github.com/go-locker/locker/internal/redisscript/wait"
)

// How a claim takes a lock.
//
// Ask sends one script, take.lua (take_shared.lua for a share, propose.lua at a node of Redlock),
// which runs as one atomic step on the server:
//
//	free, and nobody is before it   store owner, token, expiry              → GRANTED, token
//	held by this owner              a retry after a lost reply: lengthen    → GRANTED, the same token
//	held by, or claimed for another enqueue the owner, if it waits          → HELD, time left, place
//	expired, somebody waits         claim the lock for the first of them    → as the two rows above
//	the request is overdue          nothing                                 → LATE, the server's clock
//
// LATE is asked once more, by the clock that it has brought (script/due.go). A waiter asks again when
// the hub wakes it (wait/hub.go).
//
// Invariants. (1) At most one owner, or shares alone, hold a name. (2) Tokens of a name rise with
// each grant but those of shares that join others: max(server's clock, last + 1); script/mark.go. (3)
// A request that arrives after its claim was released takes nothing, or nothing beyond one TTL from
// when it was sent. (4) The deadline counts from before the request was sent, less what the server
// has taken off. (5) While a live waiter is first the lock is held, or claimed for it.
//
// Lost reply: the outcome is unknown; `there` says that the server may have the owner. To ask again
// with the same owner is idempotent by the second row, and a waiter brings its place. Release removes
// whatever the request has left, or may yet leave. Ask sends nothing while a take that was given up
// is in flight; Release does, after 20 ms. See also docs/evidence/protocols.md#redis.

// claim is one owner: 130 random bits, behind a wake-up prefix if it waits, its place if it has
// brought one, and a share mark if it wants a share; see lua/lib/layout.lua. It is a lease once it
// is granted.
type claim struct {
	wait.Waiter // the owner, the keys and the TTL, which the hub has to know, too

	// Set once:
	driver   *Driver
	mark     *script.Mark
	asks     *script.Script // by which it is asked for
	metadata string
	redlock  bool // it is for a node of Redlock

	asking
	hold hold
}

// asking belongs to the goroutine that asks for the lock, and then to the one that releases it.
type asking struct {
	argOwner any           // the owner, as an argument; others read it only after the grant
	there    bool          // the server has it, in its queue or as the holder, or may have it
	known    bool          // a take before givenUp was answered, or may have run
	givenUp  *send.Request // the latest take, if nobody waits for it any more
}

// Claim implements driver.Driver.
func (d *Driver) Claim(req driver.Request) driver.Claim {
	prefix := ""
	if req.Wake != nil {
		prefix = d.hub.Prefix()
	}
	c := &claim{driver: d, asks: script.Take, metadata: req.Metadata}
	c.TTL, c.Wake = req.TTL, req.Wake
	if !req.Shared {
		return c.named(req.Name, prefix, "")
	}
	c.asks = script.TakeShared
	c.hold.shared.Store(true)
	return c.named(req.Name, prefix, script.ShareMark)
}

// named gives c the keys of a lock, and an owner of these parts. An owner that may stand in a sorted
// set contains its metadata, for which the set has no other place.
func (c *claim) named(lock, prefix, middle string) *claim {
	random := rand.Text()
	if c.metadata != "" && prefix+middle != "" {
		random, c.metadata = random+script.MetadataMark+c.metadata, ""
	}
	c.mark = c.driver.marks.Of(lock)
	c.Keys, c.Owner = script.KeysAnd(lock, prefix, middle, random)
	c.argOwner = c.Owner
	return c
}

// noLook is when a waiter looks by itself: not at all, for the hub has the first look for all.
const noLook = time.Hour

// Ask takes the lock, or a place in its queue, in one round trip. A waiter asks again when it is
// woken: because the lock is claimed for it, or because it is the first of this Driver's waiters
// and has to look whether the queue still stands.
func (c *claim) Ask(ctx context.Context) (next time.Duration, err error) {
	if c.givenUp != nil {
		if err := c.givenUp.Await(ctx); err != nil {
			return 0, err
		}
		reply := c.givenUp.Reply()
		c.known = c.known || reply.Err == nil || reply.MayHaveRun
		c.givenUp = nil
	}
	a, err := c.ask(ctx, int64(c.Place))
	if err != nil || a.Status == script.Granted {
		return 0, err
	}
	return noLook, a.HeldBy()
}

// ask asks for the lock, or for a place in its queue if c waits, from which the hub wakes it.
// number is that of take.
func (c *claim) ask(ctx context.Context, number int64) (a script.Answer, err error) {
	if err := c.driver.CheckTTL(c.TTL); err != nil {
		return script.Answer{}, err
	}
	if !c.Waits() {
		a, err = c.take(ctx, number)
		c.there = c.there || a.Status == script.Granted || a.Status == script.Unknown
		return a, err
	}
	hub, sent := c.driver.hub, clock.Now()
	if !c.Polls() && hub.Refused() {
		if err := c.poll(ctx); err != nil {
			hub.OnFailure(&c.Waiter, sent)
			return script.Answer{}, err
		}
	}
	hub.Enter(&c.Waiter)
	a, err = c.take(ctx, number)
	c.there = c.there || err == nil || a.Status == script.Unknown
	switch {
	case err != nil && c.there:
		hub.OnFailure(&c.Waiter, sent)
	case err != nil || a.Status == script.Granted:
		hub.Leave(&c.Waiter) // it needs no wake-up, and after a failure no release
	default:
		hub.OnPlace(&c.Waiter, a)
	}
	return a, err
}

// poll makes c an owner that polls, in the same place, and has the server forget the one that it
// was: the queue passes over that, for nobody can tell it anything.
func (c *claim) poll(ctx context.Context) error {
	if c.there {
		if err := c.release(ctx, 0, new(sendings)); err != nil && !errors.Is(err, driver.ErrLost) {
			return err
		}
	}
	c.driver.hub.Poll(&c.Waiter)
	c.there, c.argOwner = false, c.Owner
	return nil
}

// take runs a take script: c is granted, or held by another, or there is an error. The answer's
// status is Unknown if the script may have run in spite of the error. number is a proposed token,
// or the place of an owner that waits.
func (c *claim) take(ctx context.Context, number int64) (script.Answer, error) {
	d := c.driver
	server := d.clock.Reading()
	for range 2 {
		sent := clock.Now()
		by := server.Due(ctx, sent, c.TTL)
		reply := c.send(ctx, c.asks, c.Keys[:], c.argOwner, d.expiryArg(c.TTL), by.Arg(c.mark, number), c.metadata)
		if reply.MayHaveRun {
			c.known = c.known || c.givenUp == nil
			return script.Answer{Status: script.Unknown}, reply.Err
		}
		if reply.Err != nil {
			return script.Answer{Status: script.Late}, reply.Err
		}
		a, err := script.ParseAnswer(reply.Value, number)
		if err != nil {
			return a, err
		}
		c.known = true
		server = d.clock.OnReply(a.Now, sent)
		if a.Status == script.Granted {
			c.onGrant(ctx, a, sent, by)
		}
		if a.Status != script.Late {
			return a, nil
		}
		// Late by an estimate of the server's clock that may be wrong: this reply has brought it up
		// to date.
	}
	return script.Answer{Status: script.Late}, errors.New("the request reached the server after its time")
}

// onGrant takes in a grant that was to arrive by that time.
func (c *claim) onGrant(ctx context.Context, a script.Answer, sent time.Time, by script.Due) {
	c.hold.token.Store(uint64(a.Token))
	c.mark.OnGrant(a)
	late := by.Late(a.Now)
	c.hold.until.Extend(sent.Add(c.TTL - late))
	if by.Whole > 0 && late > clock.Since(sent) {
		// Nothing arrives later than its answer: the reading was of another server, as in a
		// Cluster, or of before the clock was set.
		_ = c.Extend(ctx, c.TTL) // if that fails, the hold is shorter
	}
}

// send makes one call for c.
func (c *claim) send(ctx context.Context, what *script.Script, keys []any, args ...any) script.Reply {
	r := c.driver.sender.Request(what, keys, args...)
	r.Counted = c.redlock
	timeout := c.TTL
	if what.Takes {
		timeout /= 2
	}
	reply, answered := c.driver.sender.Send(ctx, timeout, r)
	if what.Takes && reply.MayHaveRun && !answered {
		c.givenUp = r
	}
	return reply
}

// Token implements driver.Claim.
func (c *claim) Token() uint64 { return c.hold.token.Load() }

// Validity implements driver.Claim.
func (c *claim) Validity() time.Duration {
	if c.givenUp != nil && !c.givenUp.Ended() {
		return c.TTL // it may be granted now
	}
	return c.hold.until.Left()
}
