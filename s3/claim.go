package s3

import (
	"context"
	"crypto/rand"
	"fmt"
	"math"
	mrand "math/rand/v2"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// claim implements driver.Claim.
type claim struct {
	driver.Request

	of         *backend
	key, owner string
	looks      int
	doubtful   bool   // the latest take was not answered, and may arrive yet
	over       string // the ETag that it asked for
	expired    string // the ETag that a read has shown to have expired
	token      uint64 // 0: not granted

	until clock.Deadline

	mu   sync.Mutex // guards what follows: Extend and Release may run at once
	etag string     // of the hold, as far as was heard
}

// Claim implements driver.Driver.
func (d *backend) Claim(req driver.Request) driver.Claim {
	return &claim{Request: req, of: d, key: d.key(req.Name), owner: rand.Text()}
}

func (c *claim) record(token uint64) record {
	r := record{Name: c.Name, Owner: c.owner, Token: token, TTL: int64(c.TTL / time.Second), Metadata: c.Metadata}
	if !utf8.ValidString(c.Metadata) {
		r.Metadata, r.Bytes = "", []byte(c.Metadata)
	}
	return r
}

// Ask reads the object, and writes it if the lock is free. If others are faster, or the store is
// busy, it looks again.
func (c *claim) Ask(ctx context.Context) (next time.Duration, err error) {
	d := c.of
	if err := d.CheckTTL(c.TTL); err != nil {
		return 0, err
	}
	if c.Shared {
		return 0, fmt.Errorf("%w: object storage has no read-write locks", driver.ErrUnsupported)
	}
	if err := d.trust(ctx); err != nil {
		return 0, err
	}
	o, err := d.get(ctx, c.key)
	for try := 1; ; try++ {
		if err == nil {
			if o.etag != c.over {
				c.doubtful = false // what was read then has changed: by this claim's own take, or by another's
			}
			switch left := o.left(); {
			case left <= 0 && o.etag != "" && !o.Released && o.etag != c.expired:
				c.expired, try = o.etag, try-1
				o, err = d.get(ctx, c.key) // the time of one read may be that of the object before
				continue
			case left > 0 && o.Owner != c.owner && !c.doubtful:
				return c.pause(left), &driver.HeldError{Holder: o.holder()}
			case try > tries && o.Owner != c.owner && !c.doubtful:
				return c.pause(0), driver.ErrHeld // others were faster each time
			}
			if o, err = c.take(ctx, o); err == nil {
				return 0, nil
			}
		}
		if !again(ctx, err, try) {
			return 0, err
		}
		o, err = d.look(ctx, c.key, o, err)
	}
}

// take writes the object that was read. A hold of this claim's own, of a take whose reply was lost,
// is extended, and has its token.
func (c *claim) take(ctx context.Context, o object) (object, error) {
	r := c.record(o.next())
	if o.Owner == c.owner && o.left() > 0 {
		r.Token = o.Token
	}
	began := clock.Now()
	c.doubtful, c.over = true, o.etag
	o, err := c.of.put(ctx, c.key, o.etag, r)
	if err != nil {
		return o, err
	}
	c.doubtful, c.token = false, r.Token
	c.mu.Lock()
	defer c.mu.Unlock()
	c.etag = o.etag
	c.until.Extend(began.Add(c.TTL))
	return o, nil
}

const (
	firstLook = 100 * time.Millisecond
	lastLook  = 2 * time.Second
	nearEnd   = 200 * time.Millisecond
)

// pause returns when to look again: at intervals that grow, and soon when the hold is about to
// expire. left is up to a second too long, because the store's times are cut.
func (c *claim) pause(left time.Duration) time.Duration {
	grown := time.Duration(float64(firstLook) * math.Pow(1.5, float64(min(c.looks, 20))))
	c.looks++
	p := min(grown, lastLook, c.TTL/4)
	p = p/2 + mrand.N(p/2)
	return min(p, max(left-time.Second, nearEnd))
}

func (c *claim) Token() uint64 { return c.token }

func (c *claim) Validity() time.Duration { return c.until.Left() }

// Extend reads the object, and writes it again if its owner is the claim's. If the write is refused,
// another Extend may have been faster: the owner tells.
func (c *claim) Extend(ctx context.Context, ttl time.Duration) error {
	o, err := c.of.get(ctx, c.key)
	for try := 1; ; try++ {
		if c.Validity() <= 0 {
			return driver.ErrLost
		}
		if err == nil {
			if o.Owner != c.owner || o.Released {
				c.of.store.tested.Store(0) // does it still compare before it writes?
				return driver.ErrLost
			}
			began := clock.Now()
			if o, err = c.of.put(ctx, c.key, o.etag, c.record(c.token)); err == nil {
				return c.extended(o.etag, began.Add(ttl))
			}
		}
		if !again(ctx, err, try) {
			return err
		}
		o, err = c.of.look(ctx, c.key, o, err)
	}
}

// extended notes a write. One that was confirmed after the hold was over here may have revived it:
// the core releases it.
func (c *claim) extended(etag string, until time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.etag = etag; c.until.Left() <= 0 {
		return driver.ErrLost
	}
	c.until.Extend(until)
	return nil
}

// Release marks the object. If a take was not answered, and may still arrive, it writes the object
// anew, so that the take is refused.
func (c *claim) Release(ctx context.Context) (err error) {
	granted, over := c.token > 0, c.Validity() <= 0
	if !granted && !c.doubtful {
		return nil
	}
	c.mu.Lock()
	o := object{record: c.record(c.token), etag: c.etag}
	c.mu.Unlock()
	if !granted {
		o, err = c.of.get(ctx, c.key)
	}
	for try := 1; ; try++ {
		mine := o.Owner == c.owner
		switch {
		case err != nil:
		case mine && o.Released:
			return lostIf(granted && over)
		case mine, !granted && o.etag == c.over && o.left() <= 0:
			o, err = c.of.put(ctx, c.key, o.etag, record{Name: c.Name, Owner: c.owner, Token: o.Token, Released: true})
			if err == nil {
				c.of.sweepIfDue()
				return lostIf(granted && over)
			}
		default:
			return lostIf(granted)
		}
		if !again(ctx, err, try) {
			return err
		}
		o, err = c.of.look(ctx, c.key, o, err)
	}
}

func lostIf(lost bool) error {
	if lost {
		return driver.ErrLost
	}
	return nil
}
