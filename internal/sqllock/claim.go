package sqllock

import (
	"bytes"
	"context"
	"database/sql"
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
	asked      time.Time // at first
	ticket     int64     // of its row among the waiters, which may be there; 0: there is none
	counts     time.Time // after which that row is written again
	doubt      int64     // the token with which a take was sent that was not answered and may arrive yet
	doubted    bool      // some take was not answered
	token      int64
	until      clock.Deadline
}

// view is what look has seen of a lock.
type view struct {
	token           int64
	owner, metadata []byte
	released, until int64
	ttl, now        int64
	ahead           bool // somebody waits who came earlier
}

func (v *view) columns() []any {
	return []any{&v.token, &v.owner, &v.metadata, &v.released, &v.until, &v.ttl, &v.now, &v.ahead}
}

// left returns for how long the lock is held; 0: it is not.
func (v view) left() time.Duration {
	if v.released != 0 {
		return 0
	}
	return time.Duration(max(v.until-v.now, 0)) * time.Microsecond
}

// errNoRow is where a row that was made cannot be seen.
var errNoRow = errors.New("the row of the lock is not there after it was made: does this server take writes, or is read_only set?")

// mostLooks is how often an Ask looks at most, where others are faster again and again.
const mostLooks = 4

// Ask takes the lock, or joins the queue.
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
		if token := d.known.recall(c.key); token > 0 {
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
			d.sweeper.made.Add(1)
			if _, err := d.exec(ctx, d.pools.Ask, d.Lax, insert, c.key, []byte(c.Name)); err != nil {
				return 0, err
			}
			continue
		}
		if v = seen[0]; v.token > c.doubt {
			c.doubt = 0 // it can take no more. A server that has not heard of it yet may say less
		}
		switch {
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

// outlasts reports whether a hold that was read before lasts for longer than its TTL from now, so
// that it is from before the clock began anew: no hold ends later than a TTL after it was written.
// The clock of a server is not looked at: in a cluster another may have written.
func (d *Driver) outlasts(until, ttl int64) bool {
	if d.Clock == nil {
		return false
	}
	now, _ := d.Clock()
	return until > now+ttl
}

// place returns the arguments of ahead, and others after them.
func (c *claim) place(after ...any) []any {
	ticket := c.ticket
	if ticket == 0 {
		ticket = math.MaxInt64
	}
	return append([]any{ticket, ticket, c.owner}, after...)
}

// holds reports whether c holds the lock by a take that was not answered.
func (c *claim) holds(v view) bool { return v.left() > 0 && bytes.Equal(v.owner, c.owner) }

// held is the error for what has not been granted.
func (v view) held() error {
	if v.left() == 0 {
		return driver.ErrHeld // nobody holds it, but others came earlier
	}
	return &driver.HeldError{Holder: participant(v.owner, v.metadata)}
}

func participant(owner, metadata []byte) driver.Participant {
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
	token, err := run(ctx, d, d.pools.Ask, true, func(ctx context.Context, conn *sql.Conn) (token int64, err error) {
		if d.Durable != "" {
			if _, err := conn.ExecContext(ctx, d.Durable); err != nil {
				return 0, err
			}
		}
		statement, args := d.bind(take, args)
		if d.Token == "" {
			err := conn.QueryRowContext(ctx, statement, args...).Scan(&token)
			if errors.Is(err, sql.ErrNoRows) {
				err = nil
			}
			return token, err
		}
		result, err := conn.ExecContext(ctx, statement, args...)
		if err != nil {
			return 0, err
		}
		if n, err := result.RowsAffected(); n == 0 || err != nil {
			return 0, err
		}
		return result.LastInsertId()
	})
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

// granted ends the wait.
func (c *claim) granted(token int64) {
	c.token, c.doubt = token, 0
	c.of.waiting.leave(c)
	c.of.sweepIfDue()
}

// wait has c's row among the waiters say that it waits, and returns how soon to look again.
func (c *claim) wait(ctx context.Context, v view) (next time.Duration, err error) {
	d, mark := c.of, markFor(c.TTL)
	if c.ticket == 0 {
		c.ticket = v.now
		d.waiting.enter(c)
	}
	if sent := time.Now(); sent.After(c.counts) {
		_, err := d.exec(ctx, d.pools.Ask, d.Lax, wait, c.key, c.ticket, c.owner, []byte(c.Metadata), v.now+mark.Microseconds())
		switch {
		case err != nil && ctx.Err() != nil:
			return 0, v.held() // look was answered. The row is written again, or deleted by Release
		case err != nil:
			return 0, err
		}
		c.counts = sent.Add(mark / 6) // well before it ends, whatever the next look takes
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

// markFor is how long a waiter counts after it was heard of.
func markFor(ttl time.Duration) time.Duration {
	return min(5*time.Second, max(ttl, 1500*time.Millisecond))
}

func (c *claim) Token() uint64 { return uint64(c.token) }

func (c *claim) Validity() time.Duration { return c.until.Left() }

// Extend implements driver.Lease.
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

// mostTogether is how many holds one statement extends.
const mostTogether = 100

// ExtendAll extends what is due at once in one statement, if none of it is lost.
func (d *Driver) ExtendAll(ctx context.Context, leases []driver.Lease, ttl time.Duration) []error {
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
				errs[from+i] = c.Extend(ctx, ttl) // which of them is it?
			default:
				c.until.Extend(sent.Add(c.TTL))
			}
		}
	}
	return errs
}

// Release ends the hold, or the wait, and keeps a take that was not answered from taking anything.
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
			d.known.remember(c.key, c.token)
		}
		d.waiting.wake(c.key)
	}
	return nil
}
