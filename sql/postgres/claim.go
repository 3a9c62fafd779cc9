package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/noanswer"
	"github.com/go-locker/locker/internal/sqllock"
)

// How a claim takes a lock. Each step is one transaction at the server; see schema.sql.
//
//  1. enter (era.go): the TTL is registered on disk before a grant for it can exist.
//  2. take_v1, if this Driver has seen the row and nobody waited then: one UPDATE of a free row.
//  3. turn_v1, if somebody waited, and a claim of this Driver held the lock. For a millisecond the
//     ask waits for the release of that claim, which sends both as one transaction: lease.go.
//  4. ask_v1, if there was neither, or that found anything else. Under the lock of the row:
//
//	free, empty queue          grant: owner, token, expiry                     isGranted
//	held by this owner         handed over, or a retry: extend                 isGranted, the same token
//	held by another            enqueue the owner if it waits                   isHeld, time left
//	free or expired, a queue   settle_v1: hand over to the first live waiter   isGranted or isHeld
//	another version            nothing: ask again with that version            isStale
//	another era                nothing: enter again                            isOver
//	no row, in the grace       nothing: the table may have been lost           isGrace, time left
//
// Invariants. (1) At most one owner per name: every grant updates the one row of its key. (2) The
// tokens of a name increase strictly: max(server clock, last + 1), in the granting step. (3) A
// deadline counts from before the request was sent. (4) A request that arrives after its claim was
// released grants nothing: it carries the era and the version that it was made for, and a release
// after an unknown outcome moves the version past it.
//
// Lost reply: the outcome is unknown. doubtful keeps what the request carried, and the hold may last
// until a TTL from then. A retry with the same owner is idempotent by the second row of the table; a
// waiter retries on another connection at once. Release passes doubtful on, for invariant 4.

// claim implements driver.Claim.
type claim struct {
	driver.Request

	of         *backend
	key, owner []byte

	asked    bool  // before
	known    bool  // to the server, or it may be
	doubtful *sent // a request that was not answered, and may arrive yet
	granted  bool
	leaving  bool // a release was not answered

	handed     atomic.Pointer[grant] // by a request of another claim of this Driver
	released   atomic.Bool
	ended      atomic.Bool
	hold       atomic.Pointer[grant]
	until      clock.Deadline
	reclaimEra atomic.Int64 // era of the latest reclaim, which may not have been answered
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
	c := &claim{Request: req, of: d, key: sqllock.Key(req.Name), owner: make([]byte, clientIDLen+16)}
	_, _ = rand.Read(c.owner[copy(c.owner, d.waiting.id):]) // never fails
	return c
}

// Ask takes the lock, or joins the queue. waiting.go wakes a waiter when the lock is its own.
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
		d.sweeper.IfDue(func(ctx context.Context) error { _, err := d.sweep(ctx); return err })
		return 0, nil
	case c.Wake == nil:
		if c.doubtful == nil {
			c.end()
		}
		return 0, a.held()
	case a.state == isHeld:
		d.waiting.need()
	}
	return interval(a, c.TTL), a.held()
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
		if err != nil {
			return a, err
		}
		last, seen := d.last(c.key, now)
		with := sent{now.number, last.version}
		if a = (answer{}); c.Wake != nil && !c.known && seen && tries == 1 {
			if !last.wanted {
				a, err = c.takeOnce(ctx, with, now.started)
			} else if last.ours && !d.noTurn.Load() {
				if a, err = c.ride(ctx, with, now.started); a.missing {
					d.noTurn.Store(isCode(d.makeTables(ctx), "42501"))
				}
			}
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
			d.seen.Set(c.key, lastSeen{with.era, a.version, last.wanted, true})
			c.take(grant{token: a.token, era: with.era, until: began.Add(c.TTL)})
			return a, nil
		case (a.state == isStale || a.state == isOver) && tries >= 10:
			return a, fmt.Errorf("the row of the lock in %s had another era or version than expected in %d tries: is something else writing to the table?", d.table, tries)
		case a.state == isStale:
			d.seen.Set(c.key, lastSeen{with.era, a.version, last.wanted, false})
		case a.state == isOver:
			d.eras.forget(with.era)
		default:
			if a.state == isHeld {
				d.seen.Set(c.key, lastSeen{with.era, a.version, true, d.owns(a.owner)})
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
	owner, metadata       []byte // of the holder
	passed                bool   // it was handed the lock by this request
	missing               bool   // nothing was done: the functions are those of an earlier release
}

// asAnswer is for a row of _ask_v1 or _turn_v1.
func asAnswer(row [][]byte) answer {
	return answer{
		state: asNumber(row[0]), token: asNumber(row[1]), version: asNumber(row[2]),
		left: time.Duration(asNumber(row[3])) * time.Microsecond, owner: row[4], metadata: row[5],
	}
}

// held is the error for what has not been granted.
func (a answer) held() error {
	if a.state != isHeld || len(a.owner) < clientIDLen || a.left <= 0 {
		return driver.ErrHeld // nobody holds it, but others came earlier, or it is not known who holds it
	}
	return &driver.HeldError{Holder: sqllock.Participant(a.owner, a.metadata)}
}

// lastSeen is what a reply said of a lock's row.
type lastSeen struct {
	era, version int64
	wanted       bool // somebody waited
	ours         bool // a claim of this Driver held it
}

// last returns what was seen of the row in this era, or else that new rows have this version.
func (d *backend) last(key []byte, now era) (last lastSeen, seen bool) {
	if last := d.seen.Get(key); last.era == now.number {
		return last, true
	}
	return lastSeen{era: now.number, version: now.version}, false
}

// takeOnce takes the lock if it is free and nobody waits. Else the state of its answer is 0.
func (c *claim) takeOnce(ctx context.Context, with sent, started int64) (a answer, err error) {
	row, err := c.of.asks.do(ctx, c.of.sql.take, c.key, c.owner, []byte(c.Metadata), number(c.TTL.Microseconds()), number(with.era), number(with.version), number(started))
	if err == nil && row[0] != nil {
		a = answer{state: isGranted, token: asNumber(row[0]), version: with.version}
	}
	return a, err
}

func (c *claim) askOnce(ctx context.Context, with sent) (a answer, err error) {
	d := c.of
	var mark int64
	if c.Wake != nil {
		mark = sqllock.MarkFor(c.TTL).Microseconds()
	}
	row, err := d.asks.do(ctx, d.sql.ask, c.key, []byte(c.Name), c.owner, []byte(c.Metadata),
		number(c.TTL.Microseconds()), number(with.era), number(with.version), number(mark))
	if err != nil {
		return a, err
	}
	a = asAnswer(row)
	a.passed = asTruth(row[6])
	if asTruth(row[7]) {
		d.waiting.wakeOthers(c)
	}
	if asTruth(row[8]) {
		d.sweeper.Made.Add(1)
	}
	return a, nil
}

// rider is an ask that a release of the same name by this Driver may send along.
type rider struct {
	args  [][]byte    // of turn_v1, behind the key and the owner that releases
	reply chan answer // closed if the outcome is unknown
}

func (c *claim) rider(with sent, started int64) *rider {
	return &rider{[][]byte{
		c.owner, []byte(c.Metadata), number(c.TTL.Microseconds()), number(with.era), number(with.version), number(started),
		number(sqllock.MarkFor(c.TTL).Microseconds()),
	}, make(chan answer, 1)}
}

// rideWait is how long an ask waits for a release. A claim of this Driver holds the lock meanwhile.
const rideWait = time.Millisecond

// ride has the next release of the name by this Driver send the ask along. Else the state of its
// answer is 0. Of several asks one waits for that.
func (c *claim) ride(ctx context.Context, with sent, started int64) (a answer, err error) {
	r := c.rider(with, started)
	if _, other := c.of.riders.LoadOrStore(string(c.key), r); other {
		return a, nil
	}
	for wait := time.After(rideWait); ; wait = nil {
		select {
		case a, ok := <-r.reply:
			if !ok {
				err = errSilent
			}
			return a, err
		case <-wait:
		case <-ctx.Done():
		}
		if c.of.riders.CompareAndDelete(string(c.key), r) {
			return a, nil
		}
		if ctx.Err() != nil {
			return a, ctx.Err()
		}
	}
}

// interval returns how soon a waiter asks again if nobody wakes it: when the hold expires, if that is
// before the next beat of its Driver. See waiting.
func interval(a answer, ttl time.Duration) time.Duration {
	if a.state == isGrace || a.left < sqllock.MarkFor(ttl)/2 {
		return min(a.left+time.Millisecond, time.Second+mrand.N(500*time.Millisecond))
	}
	return patience + mrand.N(patience/2)
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
	if wrongServer(err) {
		closeConn(conn.Conn())
	}
	switch {
	case isCode(err, "23505", "42710", "42P07", "40P01"), err != nil && strings.Contains(err.Error(), "tuple concurrently updated"):
		return nil
	case isCode(err, "42501"):
		return fmt.Errorf("the tables of the locks are missing, and this user may not make them: make them once with postgres.Schema, or name one in another schema, as table=jobs.locks: %w", err)
	}
	return err
}
