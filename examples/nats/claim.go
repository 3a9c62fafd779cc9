package natslock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/go-locker/locker/driver"
)

const (
	placeTTL = 3 * time.Second // of a waiter that is not heard of
	again    = time.Second     // how long a waiter waits that is not woken
	freeTTL  = time.Hour       // of the record of a lock that nobody uses
)

// A take is one publish to the lock's key with a Nats-TTL, over the revision of the free record. The
// revision of the grant is the token. A request that arrives after the release takes nothing,
// because the release has written over the revision that it expects. Each waiter has a key of its
// own, and subscribes to the key of the waiter before it; it also looks once a second.

// Claim returns the claim of a fresh owner.
func (d *Driver) Claim(req driver.Request) driver.Claim {
	id, digest := rand.Text(), digest(req.Name)
	return &claim{Request: req, d: d, id: id, lock: digest + ".lock", placeKey: digest + "." + id}
}

type claim struct {
	driver.Request

	d        *Driver
	id       string // the owner
	lock     string // the key of the lock
	placeKey string // of this claim's place in the queue
	released string // the owner that had released the lock before the grant

	expected uint64    // the last revision over which a take was sent that may still arrive
	place    uint64    // in the queue; 0: none, or not known
	renewed  time.Time // when the place was sent
	ahead    string    // the key of the waiter before, or of the lock; empty: it does not wait

	mu    sync.Mutex
	sub   *nats.Subscription // to the key ahead; nil: none, or no more
	grant grant
}

// grant is what is known of a hold.
type grant struct {
	token uint64 // 0: not granted
	seq   uint64 // the last revision
	end   time.Time
}

// Ask looks, and takes the lock if it is free and nobody waits who came before.
func (c *claim) Ask(ctx context.Context) (next time.Duration, err error) {
	if c.Shared {
		return 0, driver.ErrUnsupported
	}
	for {
		if err := c.queue(ctx); err != nil {
			return 0, err
		}
		lock, waiters, err := c.d.look(ctx, c.Name)
		if err != nil {
			return 0, err
		}
		ahead := c.before(waiters)
		switch {
		case lock.Owner == c.id || lock.Owner == "" && ahead == c.lock:
			// A take expects a record that goes with the grant. If it expected none, one that
			// arrives late could take the lock.
			if lock.seq == 0 {
				lock.seq, err = c.d.put(ctx, c.lock, record{Name: c.Name}, freeTTL, 0)
			}
			if err == nil {
				err = c.take(ctx, lock)
			}
		case c.Wake == nil || ahead == c.ahead:
			return again, held(lock)
		default:
			// Look again: the key ahead may have changed before it was subscribed to.
			err = cmp.Or(c.listen(ahead), errChanged)
		}
		if !errors.Is(err, errChanged) {
			return 0, err
		}
	}
}

// before returns the key of the last waiter who came before, or of the lock.
func (c *claim) before(waiters []entry) string {
	last := entry{key: c.lock}
	for _, w := range waiters {
		if w.key != c.placeKey && w.Place > last.Place && (c.place == 0 || w.Place < c.place) {
			last = w
		}
	}
	return last.key
}

// queue keeps the place of a claim that waits.
func (c *claim) queue(ctx context.Context) error {
	sent := time.Now()
	if c.ahead == "" || sent.Sub(c.renewed) < again/2 {
		return nil
	}
	seq, err := c.d.put(ctx, c.placeKey, record{Owner: c.id, Metadata: []byte(c.Metadata), Place: c.place}, placeTTL, anyRevision)
	if err == nil {
		c.renewed, c.place = sent, cmp.Or(c.place, seq)
	}
	return err
}

// listen has the claim woken when the key ahead has no owner any more. It is not awaited: the
// server gets the subscription before what is sent afterwards.
func (c *claim) listen(ahead string) error {
	sub, err := c.d.nc.Subscribe(c.d.changes(ahead), func(m *nats.Msg) {
		if e, err := parse(m); err == nil && e.Owner == "" {
			c.Wake()
		}
	})
	if err == nil {
		c.ahead = ahead
		c.unlisten(sub)
	}
	return err
}

// unlisten ends the subscription in favour of another, or of none. It reports whether there was
// one.
func (c *claim) unlisten(other *nats.Subscription) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	sub := c.sub
	if c.sub = other; sub != nil {
		_ = sub.Unsubscribe() // fails if the connection is closed
	}
	return sub != nil
}

// take writes a hold over the record of a free lock, or over that of its own if the reply to an
// earlier take was lost.
func (c *claim) take(ctx context.Context, over entry) error {
	token := uint64(0)
	if over.Owner == c.id {
		token = over.Token
	} else {
		c.released = over.Released
	}
	earlier, sent := c.expected, time.Now()
	c.expected = over.seq
	seq, err := c.d.put(ctx, c.lock, c.hold(token), c.TTL, int64(over.seq))
	if errors.Is(err, errChanged) {
		c.expected = earlier
	}
	if err != nil {
		return err
	}
	c.granted(cmp.Or(token, seq), seq, sent.Add(c.TTL))
	if c.unlisten(nil) {
		// No reply is awaited: a place expires by itself.
		_ = c.d.nc.PublishMsg(c.d.message(c.placeKey, record{}, time.Second))
	}
	return nil
}

// hold returns the record of a hold. token is 0 in the first, whose revision is the token.
func (c *claim) hold(token uint64) record {
	return record{Name: c.Name, Owner: c.id, Metadata: []byte(c.Metadata), Token: token, Released: c.released}
}

func (c *claim) granted(token, seq uint64, end time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grant.token, c.grant.seq = token, max(c.grant.seq, seq)
	if end.After(c.grant.end) {
		c.grant.end = end
	}
}

func (c *claim) known() grant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.grant
}

// Token returns the revision of the grant.
func (c *claim) Token() uint64 { return c.known().token }

// Validity returns what is left of the TTL.
func (c *claim) Validity() time.Duration { return time.Until(c.known().end) }

// Extend writes the hold again. If its last revision is not the known one, an Extend was applied
// whose reply was lost.
func (c *claim) Extend(ctx context.Context, ttl time.Duration) error {
	g := c.known()
	var sent time.Time
	seq, err := c.d.change(ctx, c.Name, entry{record: record{Owner: c.id}, seq: g.seq}, func(lock entry) (record, time.Duration, error) {
		if sent = time.Now(); lock.Owner != c.id {
			return record{}, 0, driver.ErrLost
		}
		return c.hold(g.token), ttl, nil
	})
	if err == nil {
		c.granted(g.token, seq, sent.Add(ttl))
	}
	return err
}

// Release gives up the place, and writes a free record over the hold, or over the record that a
// take expects which may still arrive.
func (c *claim) Release(ctx context.Context) error {
	g := c.known()
	if c.ahead != "" && g.token == 0 {
		c.unlisten(nil)
		if _, err := c.d.put(ctx, c.placeKey, record{}, time.Second, anyRevision); err != nil {
			return err
		}
	}
	if c.expected == 0 {
		return nil
	}
	_, err := c.d.change(ctx, c.Name, entry{record: record{Owner: c.id, Token: g.token}, seq: g.seq}, func(lock entry) (record, time.Duration, error) {
		switch {
		case lock.Owner == c.id || g.token == 0 && lock.seq <= c.expected: // it is smaller if a replica that is behind has answered
			return record{Name: c.Name, Token: lock.Token, Released: c.id}, freeTTL, nil
		case g.token == 0 || lock.Released == c.id:
			return record{}, 0, nil
		}
		return record{}, 0, driver.ErrLost
	})
	return err
}
