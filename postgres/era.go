package postgres

import (
	"context"
	"sync"
	"time"
)

// registerAgain is how often a Client says which TTLs it uses, if nobody else has: a TTL counts for twice as long, and the TTL itself.
const registerAgain = 30 * time.Second

// era is what a Driver knows of the table: since when it is whole, and which version new rows have.
type era struct {
	number, version int64
	grace           bool // names without a row may be held
}

// eras has the era, and the TTLs that are registered in it. Nothing is granted or extended for a TTL that
// is not: the server has to know the longest, should it lose the table.
type eras struct {
	mu         sync.Mutex
	now        era
	registered map[time.Duration]time.Time // until when
	graceUntil time.Time
	asking     chan struct{} // one asks for all
}

// current returns the era, if the TTL is registered in it.
func (e *eras) current(ttl time.Duration) (era, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := e.now
	now.grace = time.Now().Before(e.graceUntil)
	return now, time.Now().Before(e.registered[ttl])
}

// forget has the era asked for again, if it is still this one.
func (e *eras) forget(number int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now.number == number {
		e.now, e.registered = era{}, nil
	}
}

// moved notes the version of new rows.
func (e *eras) moved(number, version int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now.number == number {
		e.now.version = max(e.now.version, version)
	}
}

// enter returns the era, and sees to it that the TTL is registered.
func (d *Driver) enter(ctx context.Context, ttl time.Duration) (era, error) {
	e := &d.eras
	if now, ok := e.current(ttl); ok {
		return now, nil
	}
	select {
	case e.asking <- struct{}{}:
		defer func() { <-e.asking }()
	case <-ctx.Done():
		return era{}, ctx.Err()
	}
	if now, ok := e.current(ttl); ok {
		return now, nil
	}
	sent := time.Now()
	var row [][]byte
	err := d.read(ctx, func() (err error) { // it may be made again
		row, err = d.gives.do(ctx, d.sql.enter, number(ttl.Microseconds()), number(registerAgain.Microseconds()))
		return err
	})
	if err != nil {
		return era{}, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := asNumber(row[0]); now != e.now.number {
		e.now, e.registered = era{number: now}, map[time.Duration]time.Time{}
	}
	grace := time.Duration(asNumber(row[2])) * time.Microsecond
	e.now.version = max(e.now.version, asNumber(row[1]))
	e.graceUntil = time.Now().Add(grace)
	e.registered[ttl] = sent.Add(registerAgain)
	now := e.now
	now.grace = grace > 0
	return now, nil
}
