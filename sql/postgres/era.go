package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/go-locker/locker/internal/clock"
)

// How a Driver notices that the server has lost the unlogged tables, and what holds until then.
//
//  1. enter_v1 registers a TTL in a logged table, before anything is granted or extended for it. The
//     first registration waits for the disk and for synchronous standbys, later ones do not.
//  2. The row with the empty key marks an era. It is missing after a crash, a promotion, or a restore,
//     and its start time differs after a restart, in which the clock may have been set. Whichever
//     request finds that begins the next era, with a grace of the longest TTL that is registered.
//  3. In the grace, a name without a row is granted to nobody. Holders reclaim their rows: lease.go.
//  4. Requests carry the era that they were made for. One of an earlier era grants nothing.
//
// Invariant: no hold that was granted before a loss is alive after the grace, unless it was reclaimed.
// A hold lives no longer than its TTL from its last extension, which is before the loss, and its TTL is
// registered: for the TTL and a minute from then, and again while claims use it.
//
// Lost reply: registering is idempotent. A lost request of exit leaves a TTL to count for a while.

// registerAgain is how often a Client registers the TTLs it uses: each counts for twice as long, and
// the TTL itself. The first registration waits until synchronous standbys have it. The later ones do
// not: a server that takes over has the first, and counts it whatever its age.
const registerAgain = 30 * time.Second

// exitLimit is how long Close may wait for a server that does not answer.
const exitLimit = 2 * time.Second

// era is what a Driver knows of the table: since when it is whole, which version new rows have, and
// when the server was started.
type era struct {
	number, version, started int64
}

// eras has the era, and the TTLs that are registered in it. Nothing is granted or extended for a
// TTL that is not: the server has to know the longest, should it lose the table.
type eras struct {
	mu         sync.Mutex
	now        era
	registered map[time.Duration]time.Time // until when
	claims     map[time.Duration]int       // that may have a lock
	asking     chan struct{}               // one asks for all
}

// current returns the era, if the TTL is registered in it.
func (e *eras) current(ttl time.Duration) (era, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.now, clock.Now().Before(e.registered[ttl])
}

// knows reports whether the TTL was registered in the era, and the server still counts that.
func (e *eras) knows(ttl time.Duration) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	until, ok := e.registered[ttl]
	return ok && clock.Since(until) <= ttl+registerAgain
}

// use counts a claim in, or out: it has nothing, and nothing of it can arrive any more.
func (e *eras) use(ttl time.Duration, n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.claims == nil {
		e.claims = map[time.Duration]int{}
	}
	e.claims[ttl] += n
	if e.claims[ttl] == 0 {
		delete(e.claims, ttl)
	}
}

// unused returns the TTLs that are registered and have no claims.
func (e *eras) unused() (ttls []int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for ttl := range e.registered {
		if e.claims[ttl] == 0 {
			ttls = append(ttls, ttl.Microseconds())
		}
	}
	return ttls
}

// exit says which TTLs are not used any more, so that nobody has to wait for them if the server
// loses the table.
func (d *backend) exit() {
	ttls := d.eras.unused()
	if len(ttls) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), exitLimit)
	defer cancel()
	// If it fails they count for a while.
	_, _ = d.query(ctx, d.shared, d.sql.unused, d.waiting.id, array(pgtype.Int8ArrayOID, ttls))
}

// forget has the era asked for again, if it is still this one.
func (e *eras) forget(number int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now.number == number {
		e.now, e.registered = era{}, nil
	}
}

// enter returns the era, and sees to it that the TTL is registered.
func (d *backend) enter(ctx context.Context, ttl time.Duration) (era, error) {
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
	for {
		if now, entered, err := d.register(ctx, ttl, !e.knows(ttl)); entered || err != nil {
			return now, err
		}
	}
}

// register makes the request of enter. It reports false if the TTL was registered again, and that
// was a first time, because an era has begun.
func (d *backend) register(ctx context.Context, ttl time.Duration, first bool) (now era, entered bool, err error) {
	e, sent := &d.eras, clock.Now()
	kept := make(chan error, 1)
	go func() { kept <- d.keepReserve(ctx) }()
	row, err := d.gives.do(ctx, d.sql.enter, d.waiting.id,
		number(ttl.Microseconds()), number(registerAgain.Microseconds()), truth(first))
	if err == nil && first { // later registrations do not wait: it exists, or is being reconnected
		err = <-kept
	}
	if err != nil {
		return era{}, false, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if now := asNumber(row[0]); now != e.now.number {
		e.now, e.registered = era{number: now, started: asNumber(row[2])}, map[time.Duration]time.Time{}
		if !first {
			return era{}, false, nil
		}
	}
	e.now.version = max(e.now.version, asNumber(row[1]))
	for other, until := range e.registered {
		if clock.Since(until) > other+registerAgain { // the server does not count it any more
			delete(e.registered, other)
		}
	}
	e.registered[ttl] = sent.Add(registerAgain)
	return e.now, true, nil
}
