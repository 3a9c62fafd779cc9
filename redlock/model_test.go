package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/quorum"
	"github.com/go-locker/locker/internal/test/testserver"
	"github.com/go-locker/locker/internal/test/testwait"
	"github.com/go-locker/locker/redis"
)

// register is one lock on one node, as the Lua scripts of internal/redisscript keep it; see
// TestRegister_isWhatRedisDoes. Times are in nanoseconds on the node's own clock.
type register struct {
	owner  uint64 // 0: nobody
	last   uint64 // accepted, and so the token of the lock while there is one
	before uint64 // the last of the lock before
	lapsed uint64
	until  int64  // when the lock expires
	known  bool   // false: nothing, or everything forgotten
	most   uint64 // what is larger is too far ahead, unless it is the last; 0: nothing is
	clock  uint64 // accepted in place of that, or, where nothing is known, of what is smaller
	waitQueue
}

// left reports whether there is a lock that has not expired.
func (r *register) left(now int64) bool { return r.owner != 0 && r.until > now }

// take returns the token if the lock is granted to owner.
func (r *register) take(now int64, owner uint64, ttl int64, token uint64) (granted bool, accepted uint64) {
	if !r.left(now) && r.keptFor(now, 0) {
		return false, 0
	}
	return r.grant(now, owner, ttl, token)
}

// grant is take, where the queue allows it.
func (r *register) grant(now int64, owner uint64, ttl int64, token uint64) (granted bool, accepted uint64) {
	if r.left(now) {
		if r.owner == owner {
			r.until = now + ttl
			return true, r.last // sent twice
		}
		return false, 0
	}
	if r.most > 0 && token > r.most || !r.known && token < r.clock {
		token = r.clock
	}
	switch {
	case !r.known:
		r.lapsed = token - 1
	case r.owner != 0:
		r.lapsed = r.last
	}
	if r.known && token <= r.last {
		token = r.last + 1
	}
	r.before = r.last
	r.known, r.owner, r.last, r.until, r.place = true, owner, token, now+ttl, 0
	return true, token
}

func (r *register) extend(now int64, owner uint64, ttl int64) bool {
	if !r.left(now) || r.owner != owner {
		return false
	}
	r.until = now + ttl
	return true
}

func (r *register) raise(now int64, owner uint64, token uint64) bool {
	ours := r.left(now) && r.owner == owner
	if !ours || token < r.last || r.tooFar(token) {
		return false
	}
	r.known, r.last = true, token
	return true
}

// tooFar reports whether a raise of the lock's owner is refused.
func (r *register) tooFar(token uint64) bool { return r.most > 0 && token > max(r.most, r.last) }

func (r *register) release(now int64, owner uint64, token uint64, again bool) bool {
	if r.owner == owner && owner != 0 {
		if !r.left(now) {
			return false
		}
		r.owner = 0
		r.keepForFirst(now, 0)
		return true
	}
	if r.leave(now, owner) {
		return true
	}
	granted := token == r.before || token == r.last && r.owner == 0
	return again && token > 0 && r.known && r.lapsed < token && granted
}

// forget is what a restart without data does.
func (r *register) forget() { *r = register{most: r.most, clock: r.clock} }

// waitQueue is the queue of one lock on one node. Its owners are those that wait.
type waitQueue struct {
	queue     []inQueue // by their places
	kept      inQueue   // the lock is free, and only this one may take it; owner 0: nobody
	keptUntil int64
	place     uint64 // of the owner that has the lock; 0: it did not wait
}

type inQueue struct {
	owner, place uint64
	process      uint64 // of its client; 0: one of its own
	tell         func() // that the lock is kept for it
}

const keptFor = int64(2 * time.Second)

// keptFor reports whether the lock, which is free, is kept for another than asks. One for whom it
// was kept may come late, if nobody came before.
func (r *register) keptFor(now int64, asks uint64) bool {
	if asks != 0 && r.kept.owner == asks {
		return false
	}
	if r.keptUntil <= now {
		r.queue = slices.DeleteFunc(slices.Clone(r.queue), func(e inQueue) bool { return e.process != 0 && e.process == r.kept.process })
		r.kept = inQueue{}
	}
	if r.kept.owner == 0 {
		r.keepForFirst(now, asks)
	}
	return r.kept.owner != 0
}

// keepForFirst keeps the lock for the first of the queue, unless that is asks.
func (q *waitQueue) keepForFirst(now int64, asks uint64) {
	if len(q.queue) == 0 {
		return
	}
	first := q.queue[0]
	q.queue = slices.Clone(q.queue[1:])
	if first.owner != asks {
		q.kept, q.keptUntil = first, now+keptFor
		first.tell()
	}
}

func (q *waitQueue) enter(e inQueue) {
	if slices.ContainsFunc(q.queue, func(o inQueue) bool { return o.owner == e.owner }) {
		return
	}
	at, _ := slices.BinarySearchFunc(q.queue, e, func(o, e inQueue) int {
		return cmp.Or(cmp.Compare(o.place, e.place), cmp.Compare(o.owner, e.owner))
	})
	q.queue = slices.Insert(slices.Clone(q.queue), at, e)
}

func (q *waitQueue) leave(now int64, owner uint64) bool {
	if q.kept.owner == owner && owner != 0 {
		if q.keptUntil <= now {
			return false // left as it is
		}
		q.kept = inQueue{}
		q.keepForFirst(now, 0)
		return true
	}
	before := len(q.queue)
	q.queue = slices.DeleteFunc(slices.Clone(q.queue), func(o inQueue) bool { return o.owner == owner })
	return len(q.queue) < before
}

// turnAnswer is what a node answers to one that waits.
type turnAnswer struct {
	granted  bool
	accepted uint64
	earlier  bool
	left     time.Duration
}

// wait is take for an owner that waits.
func (r *register) wait(now int64, e inQueue, ttl int64, token uint64) turnAnswer {
	held := r.left(now)
	if held && r.owner != e.owner || !held && r.keptFor(now, e.owner) {
		r.enter(e)
		ahead := r.place
		if !held {
			ahead = r.kept.place
		}
		return turnAnswer{earlier: ahead > 0 && ahead < e.place, left: time.Duration(r.until - now)}
	}
	if !held {
		r.kept = inQueue{} // it is no longer in the queue
	}
	granted, accepted := r.grant(now, e.owner, ttl, token)
	r.place = e.place
	return turnAnswer{granted: granted, accepted: accepted}
}

// The simulated nodes do what a Redis server does with the scripts: both get the same random
// operations of several clients, and wake the same waiters.
func TestRegister_isWhatRedisDoes(t *testing.T) {
	s := testserver.Redis(t)
	rdb := testwait.Closed(goredis.NewClient(&goredis.Options{Addr: s.Addr()}), nil)(t)
	steps := 2000
	if testwait.Exhaustive() {
		steps = 40_000
	}
	for seed := uint64(0); steps > 0; seed++ {
		steps -= compare(t, rdb, seed)
	}
}

// compare makes one history, and returns its length. It is short: a waiter that has missed its turn
// has a connection replaced that is older than a second, and is not subscribed meanwhile.
func compare(t *testing.T, rdb *goredis.Client, seed uint64) (steps int) {
	began := time.Now()
	c := comparison{t: t, rdb: rdb, r: rand.New(rand.NewPCG(seed, 1)), name: fmt.Sprint("x", seed), waits: seed%2 == 0}
	c.soon = uint64(began.Add(20 * time.Second).UnixMicro())
	defer func() {
		for _, d := range c.drivers {
			_ = d.Close()
		}
	}()
	for range 3 {
		d, err := redis.NewDriver(rdb)
		require.NoError(t, err)
		c.drivers = append(c.drivers, d.(quorum.Node))
	}
	for ; steps < 100 && time.Since(began) < time.Second/2; steps++ {
		c.step()
	}
	return steps
}

// comparison has a server and a register side by side.
type comparison struct {
	t       *testing.T
	rdb     *goredis.Client
	drivers []quorum.Node
	r       *rand.Rand
	name    string
	waits   bool   // some wait
	soon    uint64 // tokens begin here: by a clock that is not far ahead of the server's

	reg       register
	owners    []*inBoth
	processes [3]bool // that have been told to wait
	did       []string

	mu    sync.Mutex
	woken []uint64 // by the server, in order
	told  []uint64 // by the register
}

// inBoth is an owner.
type inBoth struct {
	entry                   inQueue
	real                    quorum.Candidate
	waits                   bool
	granted, released, lost bool
	token                   uint64
}

func (c *comparison) step() {
	if len(c.owners) == 0 || c.r.IntN(4) == 0 {
		c.comes()
	} else {
		c.acts(c.owners[max(0, len(c.owners)-1-c.r.IntN(5))])
	}
	c.wakes()
}

// comes has a new owner ask: once, or from a place.
func (c *comparison) comes() {
	k, owner := c.r.IntN(len(c.drivers)), uint64(len(c.owners)+1)
	p := &inBoth{waits: c.waits && c.r.IntN(4) > 0}
	p.entry = inQueue{owner: owner, place: uint64(1_000_000 + c.r.IntN(1_000_000)), process: uint64(k + 1)}
	p.entry.tell = func() { c.told = append(c.told, owner) }
	woken := func(kept bool) {
		if kept {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.woken = append(c.woken, owner)
		}
	}
	if !p.waits {
		woken = nil
	}
	p.real = c.drivers[k].Candidate(driver.Request{Name: c.name, TTL: time.Hour}, p.entry.place, woken)
	c.owners = append(c.owners, p)
	c.ask(p)
}

func (c *comparison) ask(p *inBoth) {
	token := c.soon + uint64(c.r.IntN(12))
	c.note("%d of client %d asks under %d, at %d (%v)", p.entry.owner, p.entry.process, token-c.soon, p.entry.place, p.waits)
	var a turnAnswer
	if p.waits {
		a = c.reg.wait(0, p.entry, 1, token)
	} else {
		a.granted, a.accepted = c.reg.take(0, p.entry.owner, 1, token)
	}
	earlier, err := p.real.Propose(c.t.Context(), token)
	c.same(a.granted, err)
	switch {
	case a.granted:
		p.granted, p.token = true, a.accepted
		require.Equal(c.t, a.accepted, p.real.Token(), "after %v", c.did)
	case p.waits:
		require.Equal(c.t, a.earlier, earlier, "an earlier one has it, after %v", c.did)
		c.subscribed(int(p.entry.process - 1))
	}
}

// subscribed waits until a client is: the server passes over waiters of one that is not.
func (c *comparison) subscribed(process int) {
	c.processes[process] = true
	want := 0
	for _, p := range c.processes {
		if p {
			want++
		}
	}
	testwait.Patience(20*time.Second).Until(c.t, "the clients are subscribed", func() bool {
		channels, err := c.rdb.PubSubChannels(context.Background(), "{"+c.name+"}:*").Result()
		return err == nil && len(channels) == want
	})
}

func (c *comparison) acts(p *inBoth) {
	ctx := c.t.Context()
	switch op := c.r.IntN(9); {
	case op == 0 && c.waits || op == 1 && !c.waits:
		c.note("expire")
		c.reg.until, c.reg.keptUntil = 0, 0
		require.NoError(c.t, c.rdb.PExpire(ctx, "{"+c.name+"}", time.Minute).Err()) // the lock expires a minute before the key does
		if !c.waits && c.r.IntN(4) == 0 {
			c.note("forget")
			c.reg.forget()
			require.NoError(c.t, c.rdb.FlushAll(ctx).Err())
		}
	case !p.granted && p.waits && !p.released && op < 5:
		c.ask(p)
	case p.granted && op < 4:
		token := c.soon + uint64(c.r.IntN(12))
		c.note("%d raises to %d", p.entry.owner, token-c.soon)
		ok := c.reg.raise(0, p.entry.owner, token)
		if ok {
			p.token = token
		}
		c.same(ok, p.real.Raise(ctx, token))
	case p.granted && op < 6:
		c.note("%d extends", p.entry.owner)
		c.same(c.reg.extend(0, p.entry.owner, 1), p.real.Extend(ctx, time.Hour))
	case !p.released && (p.granted || p.waits), p.granted && !c.waits: // again, where nobody waits
		c.note("%d releases", p.entry.owner)
		ok := !p.lost && c.reg.release(0, p.entry.owner, p.token, p.released)
		p.released, p.lost = true, !ok
		c.same(ok, p.real.Release(ctx))
	}
}

// wakes compares who was woken. It has a claim last: the test may be slow.
func (c *comparison) wakes() {
	if c.reg.kept.owner != 0 && c.reg.keptUntil > 0 {
		require.NoError(c.t, c.rdb.PExpire(c.t.Context(), "{"+c.name+"}", time.Hour).Err())
	}
	testwait.Patience(20*time.Second).Until(c.t, fmt.Sprintf("%v are woken, after %v", c.told, c.did), func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.woken) >= len(c.told)
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Equal(c.t, c.told, c.woken, "woken, after %v", c.did)
}

func (c *comparison) note(format string, args ...any) {
	c.did = append(c.did, "\n"+fmt.Sprintf(format, args...))
}

func (c *comparison) same(ok bool, err error) {
	c.t.Helper()
	if err != nil && !errors.Is(err, locker.ErrHeld) {
		require.ErrorIs(c.t, err, locker.ErrLost)
	}
	require.Equal(c.t, ok, err == nil, "after %v: the register says %v, Redis %v", c.did, ok, err)
}
