package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/noanswer"
)

// claim implements driver.Claim.
type claim struct {
	driver.Request

	of         *backend
	key, owner []byte
	place      int64 // among those that this Driver has had wait

	asked    bool  // before
	known    bool  // to the server, or it may be
	doubtful *sent // a request that was not answered, and may arrive yet
	granted  bool
	leaving  bool // a release was not answered

	handed   atomic.Pointer[grant] // by a request of another claim of this Driver
	released atomic.Bool
	ended    atomic.Bool
	hold     atomic.Pointer[grant]
	until    clock.Deadline
	reclaims atomic.Int64 // the era of a reclaim that was not answered
}

// sent is what a request for a lock said.
type sent struct{ era, version int64 }

// grant is what a claim has been granted.
type grant struct {
	token int64
	era   int64
	until time.Time
}

// Claim implements driver.Driver.
func (d *backend) Claim(req driver.Request) driver.Claim {
	c := &claim{Request: req, of: d, key: key(req.Name), owner: make([]byte, clientID+16)}
	_, _ = rand.Read(c.owner[copy(c.owner, d.waiting.id):]) // never fails
	return c
}

// Ask takes the lock, or joins the queue. A waiter is told when the lock is its own. It asks again
// when the hold is due to end, and at times, too: for what wakes it may be lost.
func (c *claim) Ask(ctx context.Context) (next time.Duration, err error) {
	d := c.of
	if err := d.CheckTTL(c.TTL); err != nil {
		return 0, err
	}
	if c.Shared {
		return 0, fmt.Errorf("%w: PostgreSQL has no read-write locks", driver.ErrUnsupported)
	}
	if !c.asked {
		c.asked = true
		d.eras.use(c.TTL, 1)
		if c.Wake != nil {
			d.waiting.enter(c)
		}
	}
	if g := c.handed.Swap(nil); g != nil && g.until.Sub(clock.Now()) > c.TTL*3/4 {
		if now, registered := d.eras.current(c.TTL); registered && g.era == now.number { // else ask registers the TTL
			c.take(*g)
			return 0, nil
		}
	}
	a, err := c.askInTime(ctx)
	switch {
	case err != nil:
		return 0, later(err)
	case a.state == isGranted:
		d.sweepIfDue()
		return 0, nil
	case c.Wake == nil:
		if c.doubtful == nil {
			c.end()
		}
		return 0, a.held()
	case a.state == isHeld:
		d.waiting.need()
	}
	return d.interval(a, c.TTL), a.held()
}

// end notes that the claim has nothing.
func (c *claim) end() {
	if c.asked && !c.ended.Swap(true) {
		c.of.eras.use(c.TTL, -1)
	}
}

// take has the claim hold.
func (c *claim) take(g grant) {
	c.granted, c.known = true, true
	c.hold.Store(&g)
	c.until.Extend(g.until)
	c.of.waiting.leave(c)
}

// errSilent is the error of a request that was not answered in time: another connection may be
// better.
const errSilent = noanswer.Error("the server has not answered in time")

// askInTime asks for a quarter of the TTL at most, or a second if that is longer.
func (c *claim) askInTime(ctx context.Context) (answer, error) {
	own, cancel := context.WithTimeout(ctx, min(max(c.TTL/4, time.Second), patience))
	defer cancel()
	a, err := c.ask(own)
	if err != nil && ctx.Err() == nil && errors.Is(err, own.Err()) {
		err = errSilent
	}
	return a, err
}

// ask asks until the lock is granted or another's, or the claim is in the queue. An answer may be
// that the row has another version, or that the era is over. One that waits asks on another
// connection if that breaks: it is granted the lock once.
func (c *claim) ask(ctx context.Context) (a answer, err error) {
	d := c.of
	connections, began := d.pool.Stat().TotalConns(), clock.Now()
	missing := false // a table or a function
	for tries := 1; ctx.Err() == nil; tries++ {
		if missing {
			if err := d.makeTables(ctx); err != nil {
				return a, err
			}
		}
		now, err := d.enter(ctx, c.TTL)
		if missing = noTable(err); missing {
			continue
		}
		if isCode(err, "42703") {
			return a, fmt.Errorf("the table %s is that of an earlier release: stop all programs that use it, and drop it: %w", fill("public.locker_locks", d.table), err)
		}
		if err != nil {
			return a, err
		}
		last, seen := d.versions.recall(c.key, now)
		with := sent{now.number, last.version}
		if a = (answer{}); c.Wake != nil && !c.known && seen && !last.wanted && tries == 1 {
			a, err = c.takeOnce(ctx, with, now.started)
		}
		if err == nil && a.state == 0 {
			a, err = c.askOnce(ctx, with)
		}
		switch {
		case noTable(err):
			missing = true
			d.eras.forget(now.number)
		case err != nil && didNothing(err):
			return a, err
		case err != nil:
			c.known, c.doubtful = true, &with
			c.until.Extend(began.Add(c.TTL)) // it may have been granted
			if c.Wake == nil || !broken(err) || connections <= 0 {
				return a, err
			}
			connections--
		case a.state == isGranted:
			d.versions.remember(c.key, remembered{with.era, a.version, last.wanted})
			c.take(grant{token: a.token, era: with.era, until: began.Add(c.TTL)})
			return a, nil
		case (a.state == isStale || a.state == isOver) && tries >= 10:
			return a, fmt.Errorf("the row of the lock in %s had another era or version than expected in %d tries: is something else writing to the table?", d.table, tries)
		case a.state == isStale:
			d.versions.remember(c.key, remembered{with.era, a.version, last.wanted})
		case a.state == isOver:
			d.eras.forget(with.era)
		default:
			if a.state == isHeld {
				d.versions.remember(c.key, remembered{with.era, a.version, true})
				c.known = c.known || c.Wake != nil
			}
			if a.passed {
				d.handOver(ctx, began, a.owner, a.token, with.era)
			}
			return a, nil
		}
	}
	return a, ctx.Err()
}

// The states of an answer: see _ask_v1 in schema.sql.
const (
	isGranted = 1
	isHeld    = 2
	isStale   = 3
	isOver    = 4
	isGrace   = 5
)

// answer is what the server knows of a claim, and of the hold that it asks for.
type answer struct {
	state, token, version int64
	left                  time.Duration
	before                int64  // how many wait who came earlier
	owner, metadata       []byte // of the holder
	passed                bool   // it was handed the lock by this request
}

// held is the error for what has not been granted.
func (a answer) held() error {
	if a.state != isHeld || len(a.owner) < clientID || a.left <= 0 {
		return driver.ErrHeld // nobody holds it, but others came earlier, or it is not known who holds it
	}
	return &driver.HeldError{Holder: participant(a.owner, a.metadata)}
}

func participant(owner, metadata []byte) driver.Participant {
	return driver.Participant{ID: hex.EncodeToString(owner), Metadata: string(metadata)}
}

// takeOnce takes the lock if it is free and nobody waits. Else the state of its answer is 0.
func (c *claim) takeOnce(ctx context.Context, with sent, started int64) (a answer, err error) {
	row, err := c.of.asks.do(ctx, c.of.sql.take, c.key, c.owner, text(c.Metadata), number(c.TTL.Microseconds()), number(with.era), number(with.version), number(started))
	if err == nil && row[0] != nil {
		a = answer{state: isGranted, token: asNumber(row[0]), version: with.version}
	}
	return a, err
}

func (c *claim) askOnce(ctx context.Context, with sent) (a answer, err error) {
	d := c.of
	var mark, before int64
	if c.Wake != nil {
		mark = markFor(c.TTL).Microseconds()
		if !d.listener.hears() {
			before = 20
		}
	}
	row, err := d.asks.do(ctx, d.sql.ask, c.key, text(c.Name), c.owner, text(c.Metadata), number(c.TTL.Microseconds()),
		number(with.era), number(with.version), number(mark), number(before))
	if err != nil {
		return a, err
	}
	a = answer{
		state: asNumber(row[0]), token: asNumber(row[1]), version: asNumber(row[2]), left: time.Duration(asNumber(row[3])) * time.Microsecond,
		before: asNumber(row[4]), owner: row[5], metadata: row[6], passed: asTruth(row[7]),
	}
	if asTruth(row[8]) {
		d.waiting.wakeOthers(c)
	}
	if asTruth(row[9]) {
		d.sweeper.made.Add(1)
	}
	return a, nil
}

// interval is how soon a waiter asks again if nobody wakes it: when the hold ends, if that is
// before the next beat of its Client. See waiting.
func (d *backend) interval(a answer, ttl time.Duration) time.Duration {
	longest := patience + mrand.N(patience/2)
	if a.state == isGrace || a.left < markFor(ttl)/2 {
		longest = min(a.left+time.Millisecond, time.Second+mrand.N(500*time.Millisecond))
	}
	if !d.listener.hears() {
		// The more stand before it, the longer it takes.
		longest = min(longest, time.Duration(1+a.before)*100*time.Millisecond+mrand.N(100*time.Millisecond))
	}
	return max(longest, time.Millisecond)
}

// longestTable leaves room for what names end with, such as _release_v1, within PostgreSQL's 63
// bytes. Names that are cut are no longer different, in another release at the latest.
const longestTable = 50

// makeTables takes it for done if somebody else makes a table now, which IF NOT EXISTS does not
// see.
func (d *backend) makeTables(ctx context.Context) error {
	if name := d.table[strings.Index(d.table, ".")+1:]; len(name) > longestTable {
		return fmt.Errorf("the table name %q has more than %d bytes: PostgreSQL cuts longer names of what is made beside it", name, longestTable)
	}
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	_, err = conn.Conn().PgConn().Exec(ctx, d.sql.schema).ReadAll() // one transaction, in the simple protocol
	switch {
	case isCode(err, "23505", "42710", "42P07", "40P01"), err != nil && strings.Contains(err.Error(), "tuple concurrently updated"):
		return nil
	case isCode(err, "42501"):
		return fmt.Errorf("the tables of the locks are missing, and this user may not make them: make them once with postgres.Schema, or name one in another schema, as table=jobs.locks: %w", err)
	}
	return err
}
