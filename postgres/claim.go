package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/noanswer"
)

// claim implements driver.Claim.
type claim struct {
	driver.Request

	of         *Driver
	key, owner []byte
	asked      bool  // before
	seen       int64 // the version with which it may take the lock
	free       bool  // the lock was, when this Driver last released it
	known      bool  // to the server, or it may be
	doubtful   bool  // a take was not answered, and may arrive yet
	waited     bool
	token      int64
	until      atomic.Pointer[time.Time]
}

// Claim implements driver.Driver.
func (d *Driver) Claim(req driver.Request) driver.Claim {
	c := &claim{Request: req, of: d, key: key(req.Name), owner: make([]byte, driverID+16)}
	_, _ = rand.Read(c.owner[copy(c.owner, d.listener.id()):]) // never fails
	return c
}

// Ask takes the lock, or joins the queue. A waiter is told when the lock is released. It asks again
// when the hold is due to end, and at times, too: for what wakes it may be lost, and its mark in
// the queue ends.
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
		last := d.seen.recall(c.key)
		c.seen, c.free = last.version, last.version > 0 && !last.waited
		if c.Wake != nil {
			d.listener.enter(c.owner, c.Wake)
		}
	}
	a, err := c.askInTime(ctx)
	switch {
	case err != nil:
		return 0, later(err)
	case a.granted:
		d.listener.leave(c.owner)
		d.sweepIfDue()
		return 0, nil
	case c.Wake == nil:
		return 0, a.held()
	}
	d.listener.need()
	return d.interval(a, c.TTL), a.held()
}

// errSilent is the error of a request that was not answered in time: another connection may be
// better.
const errSilent = noanswer.Error("the server has not answered in time")

// askInTime asks for a quarter of the TTL at most, or a second if that is longer.
func (c *claim) askInTime(ctx context.Context) (answer, error) {
	own, cancel := context.WithTimeout(ctx, max(c.TTL/4, time.Second))
	defer cancel()
	a, err := c.ask(own)
	if err != nil && ctx.Err() == nil && errors.Is(err, own.Err()) {
		err = errSilent
	}
	return a, err
}

// ask asks until the lock is granted or another's, or the claim is in the queue. An answer may be
// that others were faster, or that the row has to be made. One that waits asks on another
// connection if that breaks: it is granted the lock once.
func (c *claim) ask(ctx context.Context) (a answer, err error) {
	connections := c.of.pool.Stat().TotalConns()
	for tries := 1; ctx.Err() == nil; tries++ {
		began, ask := time.Now(), c.join
		if c.Wake == nil && !c.doubtful || c.free { // a take does not tell that an earlier one was granted
			c.free, ask = false, c.take
		}
		a, err = ask(ctx)
		switch {
		case err == nil && a.granted:
			c.token, c.known = a.token, true
			c.lasts(began, c.TTL)
			return a, nil
		case err == nil && a.queued:
			c.known, c.waited = true, true
			return a, nil
		case err == nil && c.Wake == nil && (a.taken || tries == 4): // make the table, the row; see; take: others are faster
			return a, nil
		case err == nil:
			c.seen = a.version
		case !didNothing(err):
			c.known, c.doubtful = true, true
			c.lasts(began, c.TTL) // it may have been granted
			if c.Wake == nil || !broken(err) || connections <= 0 {
				return a, err
			}
			connections--
		default:
			if c.seen, err = c.of.makeMissing(ctx, c.key, c.Name, err); err != nil {
				return a, err
			}
		}
	}
	return a, ctx.Err()
}

// answer is what the server knows of a claim, and of the hold that it asks for.
type answer struct {
	granted, queued bool
	taken           bool // the lock is another's, or somebody waits for it
	token, version  int64
	before          int64 // how many wait who came earlier, the dead included; 0 if all of them are dead
	left            time.Duration
	owner, metadata []byte // of the holder; none if nobody holds it
}

// held is the error for what has not been granted.
func (a answer) held() error {
	if a.owner == nil {
		return driver.ErrHeld // nobody holds it, but others came earlier
	}
	return &driver.HeldError{Holder: participant(a.owner, a.metadata)}
}

func participant(owner, metadata []byte) driver.Participant {
	return driver.Participant{ID: hex.EncodeToString(owner), Metadata: string(metadata)}
}

// take takes the lock if it is free, and joins no queue: a statement of half the cost.
func (c *claim) take(ctx context.Context) (a answer, err error) {
	var free, waited bool
	err = c.of.row(ctx, c.of.sql.take, c.key, c.seen, c.owner, c.TTL.Microseconds(), []byte(c.Metadata)).
		Scan(&a.token, &a.version, &free, &waited, &a.owner, &a.metadata)
	a.granted, a.taken = a.token > 0, !free || waited
	if free {
		a.owner = nil
	}
	return a, err
}

// join takes the lock if it is for c, and puts c into the queue otherwise, if c is not there yet.
func (c *claim) join(ctx context.Context) (a answer, err error) {
	var leftMicros int64
	err = c.of.row(ctx, c.of.sql.ask, c.key, c.seen, c.owner, c.TTL.Microseconds(), []byte(c.Metadata), markFor(c.TTL).Microseconds()).
		Scan(&a.granted, &a.queued, &a.token, &a.version, &a.before, &leftMicros, &a.owner, &a.metadata)
	if a.left = time.Duration(leftMicros) * time.Microsecond; a.left == 0 {
		a.owner = nil
	}
	return a, err
}

// interval is how soon a waiter looks again if nobody wakes it.
func (d *Driver) interval(a answer, ttl time.Duration) time.Duration {
	longest := min(time.Second+mrand.N(500*time.Millisecond), markFor(ttl)/3)
	switch {
	case !d.listener.hears():
		// The more stand before it, the longer it takes.
		return min(longest, time.Duration(1+min(a.before, 20))*100*time.Millisecond+mrand.N(100*time.Millisecond))
	case a.before == 0:
		return min(longest, a.left+time.Millisecond)
	default:
		return longest
	}
}

// markFor is how long a waiter counts after it has been heard of.
func markFor(ttl time.Duration) time.Duration {
	return min(5*time.Second, max(ttl, 1500*time.Millisecond))
}

// makeMissing makes the row, and returns its version, or makes the table, if that is what err is
// about. Else it returns err. The version is 0 if somebody else has made the row.
func (d *Driver) makeMissing(ctx context.Context, key []byte, name string, err error) (version int64, _ error) {
	switch {
	case noTable(err):
		return 0, d.makeTable(ctx)
	case errors.Is(err, pgx.ErrNoRows):
		d.sweeper.made.Add(1)
		err = d.row(ctx, d.sql.insert, key, []byte(name)).Scan(&version)
		if errors.Is(err, pgx.ErrNoRows) {
			err = nil
		}
	}
	return version, err
}

// makeTable takes it for done if somebody else makes the table now, which IF NOT EXISTS does not
// see.
func (d *Driver) makeTable(ctx context.Context) error {
	err := d.exec(ctx, d.sql.schema)
	switch {
	case isCode(err, "23505", "42710", "42P07"):
		return nil
	case isCode(err, "42501"):
		return fmt.Errorf("the table of the locks is missing, and this user may not make it: make it once with postgres.Schema, or name one in another schema, as table=jobs.locks: %w", err)
	}
	return err
}
