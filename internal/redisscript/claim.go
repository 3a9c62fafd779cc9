package redisscript

import (
	"context"
	"crypto/rand"
	"errors"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// claim is one owner: 130 random bits, and in front of those how it can be told that it need not
// wait any more, its place if it has brought one, and whether it wants a share; see
// lua/lib/layout.lua.
type claim struct {
	driver   *Driver
	owner    string
	argOwner any     // the same
	keys     [3]any  // see keysOf
	mark     *mark   // see mark.go
	asks     *Script // by which it is asked for
	ttl      time.Duration
	metadata string
	redlock  bool        // it is for a node of Redlock
	shared   atomic.Bool // it is a share, or may be

	// Of a claim that waits. The hub's mutex guards list and queued.
	wake    func()             // has it ask
	told    func(claimed bool) // the same at a node of Redlock: whether the lock is claimed for it
	place   uint64             // in the queue; 0: not known yet
	entered bool               // the hub knows it
	list    *waitList
	queued  bool // it is in the list's queue

	there    bool          // the server has it, in its queue or as the holder, or may have it
	answered bool          // the server has answered, and knows it
	givenUp  *request      // a take that nobody waits for any more; nil: there is none
	token    atomic.Uint64 // 0: the grant was not answered
	until    clock.Deadline
	releases sendings
	lost     atomic.Bool // said by the server to a release
}

const (
	shareMark    = "~"  // in the owner of a share
	metadataMark = "\n" // before the metadata, in the owner of a share
)

// Claim implements driver.Driver.
func (d *Driver) Claim(req driver.Request) driver.Claim {
	prefix, random := "", rand.Text()
	if req.Wake != nil {
		prefix = d.hub.prefixes[d.hub.kind()]
	}
	c := &claim{driver: d, asks: take, ttl: req.TTL, metadata: req.Metadata, wake: req.Wake}
	if !req.Shared {
		return c.named(req.Name, prefix, "", random)
	}
	if c.asks, c.metadata = takeShared, ""; req.Metadata != "" {
		random += metadataMark + req.Metadata
	}
	c.shared.Store(true)
	return c.named(req.Name, prefix, shareMark, random)
}

// named gives c the keys of a lock, and an owner of these parts.
func (c *claim) named(lock, prefix, middle, random string) *claim {
	c.mark = c.driver.marks.of(lock)
	c.keys, c.owner = keysAnd(lock, prefix, middle, random)
	c.argOwner = c.owner
	return c
}

// noLook is when a waiter looks by itself: not at all, for the hub has the first look for all.
const noLook = time.Hour

// Ask takes the lock, or a place in its queue, in one round trip. A waiter asks again when it is
// woken: because the lock is claimed for it, or because it is the first of this Driver's waiters
// and has to look whether the queue still stands.
func (c *claim) Ask(ctx context.Context) (next time.Duration, err error) {
	if err := c.awaitFormer(ctx); err != nil {
		return 0, err
	}
	a, err := c.ask(ctx, int64(c.place))
	if err != nil || a.status == granted {
		return 0, err
	}
	return noLook, a.heldBy()
}

func (c *claim) waits() bool { return c.wake != nil || c.told != nil }

// ask asks for the lock, or for a place in its queue if c waits, from which the hub wakes it.
// number is that of take.
func (c *claim) ask(ctx context.Context, number int64) (a answer, err error) {
	if err := c.driver.CheckTTL(c.ttl); err != nil {
		return answer{}, err
	}
	if !c.waits() {
		a, err = c.take(ctx, number)
		c.there = c.there || a.status == granted || a.status == unknown
		return a, err
	}
	hub, sent := c.driver.hub, clock.Now()
	if c.owner[0] != polls && hub.refused() {
		if err := c.unsubscribe(ctx); err != nil {
			hub.onFailure(c, sent)
			return answer{}, err
		}
	}
	hub.enter(c)
	a, err = c.take(ctx, number)
	c.there = c.there || err == nil || a.status == unknown
	switch {
	case err != nil && c.there:
		hub.onFailure(c, sent)
	case err != nil || a.status == granted:
		hub.leave(c) // it is told of nothing, and if it failed it need not be released
	default:
		hub.onPlace(c, a)
	}
	return a, err
}

// unsubscribe makes c an owner that polls, in the same place, and has the server forget the one
// that it was: the queue passes over that, for nobody can tell it anything.
func (c *claim) unsubscribe(ctx context.Context) error {
	prefixes := c.driver.hub.prefixes
	if c.there {
		if err := c.release(ctx, 0, new(sendings)); err != nil && !errors.Is(err, driver.ErrLost) {
			return err
		}
	}
	c.driver.hub.leave(c)
	c.there, c.queued = false, false
	c.owner = prefixes[polls] + c.owner[len(prefixes[polls]):] // all are as long
	c.argOwner = c.owner
	return nil
}

// take runs a take script: c is granted, or held by another, or there is an error. The answer's
// status is unknown if the script may have run in spite of the error. number is a proposed token,
// or the place of an owner that waits.
//
// A request that arrives late gets what is left of the TTL, and one that arrives too late nothing.
// Where the server's clock is not known the first is too late in any case, and brings it.
func (c *claim) take(ctx context.Context, number int64) (answer, error) {
	d := c.driver
	server := d.server.reading()
	for range 2 {
		sent := clock.Now()
		by := server.due(ctx, sent, c.ttl)
		reply := c.send(ctx, c.asks, c.keys[:], c.argOwner, d.expiryArg(c.ttl), by.arg(c.mark, number), c.metadata)
		if reply.MayHaveRun {
			return answer{status: unknown}, reply.Err
		}
		if reply.Err != nil {
			return answer{status: late}, reply.Err
		}
		a, err := parseAnswer(reply.Value, number)
		if err != nil {
			return a, err
		}
		c.answered = true
		server = d.server.onReply(a.now, sent)
		if a.status == granted {
			c.onGrant(ctx, a, sent, by)
		}
		if a.status != late {
			return a, nil
		}
		// Late by an estimate of the server's clock that may be wrong: this reply has brought it up
		// to date.
	}
	return answer{status: late}, errors.New("the request reached the server after its time")
}

// onGrant takes in a grant that was to arrive by that time.
func (c *claim) onGrant(ctx context.Context, a answer, sent time.Time, by due) {
	c.token.Store(uint64(a.token))
	c.mark.onGrant(a)
	late := by.late(a.now)
	c.until.Extend(sent.Add(c.ttl - late))
	if by.whole > 0 && late > clock.Since(sent) {
		// Nothing arrives later than its answer: the reading was of another server, as in a
		// Cluster, or of before the clock was set.
		_ = c.Extend(ctx, c.ttl) // if that fails, the hold is shorter
	}
}

// send makes one call for c.
func (c *claim) send(ctx context.Context, script *Script, keys []any, args ...any) Reply {
	r := c.driver.sender.request(script, keys, args...)
	r.redlock = c.redlock
	timeout := c.ttl
	if script.Takes {
		timeout /= 2
	}
	reply, answered := c.driver.sender.send(ctx, timeout, r)
	if script.Takes && reply.MayHaveRun && !answered {
		c.givenUp = r
	}
	return reply
}

// epoch is what the times of claims and servers are counted from.
var epoch = clock.Now()

// Token implements driver.Lease.
func (c *claim) Token() uint64 { return c.token.Load() }

// Validity implements driver.Lease.
func (c *claim) Validity() time.Duration {
	if !c.takeEnded() {
		return c.ttl // it may be granted now
	}
	return c.until.Left()
}
