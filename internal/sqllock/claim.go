package sqllock

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	mrand "math/rand/v2"
	"strings"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// claim implements driver.Claim.
type claim struct {
	driver.Request

	of         *Driver
	key, owner []byte
	asked      time.Time // time of the first Ask
	ticket     int64     // queue position of its row in the waiters table; 0: no row was written
	counts     time.Time // the row is rewritten after this
	doubt      int64     // token compared by a take in doubt that may still arrive; 0: none
	doubted    bool      // some take had an unknown outcome
	token      int64
	until      clock.Deadline
}

// view is the result of look.
type view struct {
	token           int64
	owner, metadata []byte
	released, until int64
	ttl, now        int64
	ahead           bool // an earlier waiter exists
}

func (v *view) columns() []any {
	return []any{&v.token, &v.owner, &v.metadata, &v.released, &v.until, &v.ttl, &v.now, &v.ahead}
}

// left returns the remaining time of the hold; 0: the lock is free.
func (v view) left() time.Duration {
	if v.released != 0 {
		return 0
	}
	return time.Duration(max(v.until-v.now, 0)) * time.Microsecond
}

// errNoRow: a row that was just inserted is not visible.
var errNoRow = errors.New("the row of the lock is not there after it was made: does this server take writes, or is read_only set?")

// mostLooks bounds the rounds of one Ask that loses each race to a take of another.
const mostLooks = 4

// Ask takes the lock, or joins the queue. If this Driver released the lock last, it knows the token
// and tries a take at once. Otherwise each round looks, and acts on what it sees:
//
//	no row                       insert it, look again
//	the owner is ours            a take with a lost reply: extend it               → granted
//	it expires after now + TTL   the clock started anew: shorten it, look again
//	free, no earlier waiter      take with the token seen; look again if it lost   → granted
//	held, or an earlier waiter   ErrHeld; a waiter writes its row, and polls
func (c *claim) Ask(ctx context.Context) (next time.Duration, err error) {
	d := c.of
	if c.Shared {
		return 0, fmt.Errorf("%w: there are no read-write locks in a database of SQL", driver.ErrUnsupported)
	}
	if err := d.CheckTTL(c.TTL); err != nil {
		return 0, err
	}
	if c.asked.IsZero() {
		c.asked = time.Now()
		if token := d.known.Get(c.key); token > 0 {
			d.known.Set(c.key, 0) // it is about to change
			if granted, err := c.take(ctx, token); granted || err != nil {
				return 0, err
			}
		}
	}
	var v view
	for range mostLooks {
		sent := clock.Now()
		seen, err := query(ctx, d, (*view).columns, look, c.place(c.key)...)
		if err != nil {
			return 0, err
		}
		if len(seen) == 0 {
			d.sweeper.Made.Add(1)
			if _, err := d.exec(ctx, d.pools.Ask, d.Lax, insert, c.key, []byte(c.Name)); err != nil {
				return 0, err
			}
			continue
		}
		switch v = seen[0]; {
		case c.holds(v):
			if err := c.extend(ctx, sent); errors.Is(err, driver.ErrLost) {
				continue
			} else if err != nil {
				return 0, err
			}
			c.granted(v.token)
			return 0, nil
		case v.released == 0 && d.outlasts(v.until, v.ttl):
			if _, err := d.exec(ctx, d.pools.Ask, d.Durable, shorten, c.key, v.until); err != nil {
				return 0, err
			}
		case v.left() == 0 && !v.ahead:
			if granted, err := c.take(ctx, v.token); granted || err != nil {
				return 0, err
			}
		case c.Wake == nil:
			return 0, v.held()
		default:
			return c.wait(ctx, v)
		}
	}
	if v.owner == nil {
		return 0, errNoRow
	}
	return d.Poll, v.held() // others were faster
}

// outlasts reports whether a hold expires more than its TTL from now: then it was written before
// the clock started anew, since a hold expires at most a TTL after it is written. It is asked of
// the local clock only: in a cluster of servers, another server's clock may have written the time.
func (d *Driver) outlasts(until, ttl int64) bool {
	if d.Clock == nil {
		return false
	}
	now, _ := d.Clock()
	return until > now+ttl
}

// place returns the arguments of the SQL fragment ahead, followed by those given.
func (c *claim) place(after ...any) []any {
	ticket := c.ticket
	if ticket == 0 {
		ticket = math.MaxInt64
	}
	return append([]any{ticket, ticket, c.owner}, after...)
}

// holds reports whether a take of c with an unknown outcome was granted.
func (c *claim) holds(v view) bool { return v.left() > 0 && bytes.Equal(v.owner, c.owner) }

// held returns the error of an Ask that was not granted.
func (v view) held() error {
	if v.left() == 0 {
		return driver.ErrHeld // free, but there are earlier waiters
	}
	return &driver.HeldError{Holder: Participant(v.owner, v.metadata)}
}

// Participant returns the owner of a row in the form that operators see.
func Participant(owner, metadata []byte) driver.Participant {
	return driver.Participant{ID: hex.EncodeToString(owner), Metadata: string(metadata)}
}

// take takes the lock if its token is still the one that was seen.
func (c *claim) take(ctx context.Context, seen int64) (granted bool, err error) {
	d, ttl := c.of, c.TTL.Microseconds()
	if err := d.connect(ctx); err != nil {
		return false, err
	}
	sent := clock.Now()
	c.doubt = max(c.doubt, seen)
	args := append([]any{[]byte(c.Metadata), ttl, ttl, c.owner, c.key, seen}, c.place()...)
	token, err := d.exec(ctx, d.pools.Ask, d.Durable, take, args...)
	if err != nil {
		c.doubted = true
		return false, err
	}
	if seen == c.doubt {
		c.doubt = 0
	}
	if token == 0 {
		return false, nil
	}
	c.until.Extend(sent.Add(c.TTL))
	c.granted(token)
	return true, nil
}

// granted records the grant, leaves the wait list, and gives the sweeper a chance to run.
func (c *claim) granted(token int64) {
	c.token, c.doubt = token, 0
	c.of.waiting.leave(c)
	c.of.sweeper.IfDue(func(ctx context.Context) error { return c.of.Sweep(ctx, Idle) })
}

// wait writes c's row in the waiters table if it is due, and returns the next poll interval. Only
// the first waiter of a name in this process polls fast; a local release wakes it at once.
func (c *claim) wait(ctx context.Context, v view) (next time.Duration, err error) {
	d, mark := c.of, MarkFor(c.TTL)
	if c.ticket == 0 {
		c.ticket = v.now
		d.waiting.enter(c)
	}
	if sent := time.Now(); sent.After(c.counts) {
		_, err := d.exec(ctx, d.pools.Ask, d.Lax, wait, c.key, c.ticket, c.owner, []byte(c.Metadata), v.now+mark.Microseconds())
		switch {
		case err != nil && ctx.Err() != nil:
			// look was answered, so ErrHeld is true. Release deletes the row if it was written.
			return 0, v.held()
		case err != nil:
			return 0, err
		}
		c.counts = sent.Add(mark / 6) // well before the row expires, even if the next look is slow
	}
	next = mark / 3
	if d.waiting.first(c) {
		next = min(next, 10*d.Poll, max(d.Poll, time.Since(c.asked)/8))
	}
	next = next/2 + mrand.N(next/2)
	if left := v.left(); left > 0 {
		next = min(next, left+time.Millisecond)
	}
	return next, v.held()
}

// MarkFor returns how long a waiter's row counts after its last heartbeat.
func MarkFor(ttl time.Duration) time.Duration {
	return min(5*time.Second, max(ttl, 1500*time.Millisecond))
}

func (c *claim) Token() uint64 { return uint64(c.token) }

func (c *claim) Validity() time.Duration { return c.until.Left() }

// Extend implements driver.Claim.
func (c *claim) Extend(ctx context.Context, _ time.Duration) error {
	return c.extend(ctx, clock.Now())
}

func (c *claim) extend(ctx context.Context, sent time.Time) error {
	d := c.of
	n, err := d.exec(ctx, d.pools.Keep, d.Durable, extend+ours, c.TTL.Microseconds(), c.key, c.owner)
	switch {
	case err == nil && n == 0:
		return driver.ErrLost
	case err == nil:
		c.until.Extend(sent.Add(c.TTL))
	}
	return err
}

// mostTogether bounds the holds that one statement extends.
const mostTogether = 100

// ExtendAll extends the holds in one statement. If it changes fewer rows than there are holds, some
// are lost, and each is extended alone to see which.
func (d *Driver) ExtendAll(ctx context.Context, leases []driver.Claim, ttl time.Duration) []error {
	errs := make([]error, len(leases))
	for from := 0; from < len(leases); from += mostTogether {
		some := leases[from:min(from+mostTogether, len(leases))]
		args := []any{ttl.Microseconds()}
		for _, l := range some {
			args = append(args, l.(*claim).key, l.(*claim).owner)
		}
		sent := clock.Now()
		n, err := d.exec(ctx, d.pools.Keep, d.Durable, extend+"("+strings.Repeat(ours+" OR ", len(some)-1)+ours+")", args...)
		for i, l := range some {
			switch c := l.(*claim); {
			case err != nil:
				errs[from+i] = err
			case n < int64(len(some)):
				errs[from+i] = c.Extend(ctx, ttl)
			default:
				c.until.Extend(sent.Add(c.TTL))
			}
		}
	}
	return errs
}

// Release ends the hold or the wait. In this order: leave deletes the waiter's row, pass makes a
// take with an unknown outcome fail if it has not arrived, release ends the hold if it has. A
// Release that fails may be called again.
func (c *claim) Release(ctx context.Context) error {
	d := c.of
	d.waiting.leave(c)
	if c.ticket > 0 {
		if _, err := d.exec(ctx, d.pools.Keep, d.Lax, leave, c.key, c.ticket, c.owner); err != nil {
			return err
		}
	}
	if c.token == 0 && !c.doubted {
		return nil
	}
	if c.doubt > 0 {
		if _, err := d.exec(ctx, d.pools.Keep, d.Lax, pass, c.key, c.doubt); err != nil {
			return err
		}
	}
	n, err := d.exec(ctx, d.pools.Keep, d.Lax, release, c.key, c.owner)
	switch {
	case err != nil:
		return err
	case n == 0 && c.token > 0:
		return driver.ErrLost
	case n > 0:
		if c.token > 0 {
			d.known.Set(c.key, c.token)
		}
		d.waiting.wake(c.key)
	}
	return nil
}
