package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// The simulated nodes do what a Redis server does with the scripts: both get the same random
// operations of several clients, and wake the same waiters.
func TestRegister_isWhatRedisDoes(t *testing.T) {
	s := testserver.Redis(t)
	rdb := goredis.NewClient(&goredis.Options{Addr: s.Addr()})
	t.Cleanup(func() { _ = rdb.Close() })
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
