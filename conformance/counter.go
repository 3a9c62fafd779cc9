package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-locker/locker"
)

var counterRows = []row{{
	name:    "a late write with the token of a lost hold is refused",
	promise: "A resource refuses 0, and every token below the largest that it has seen. Then no holder's update is lost, even if an earlier holder writes late.",
	sources: []string{kleppmann, redissonToken},
	shows:   locker.Fencing,
	needs:   []need{tokens, expire},
	body:    lateWrite,
}, {
	name:    "a counter guarded by tokens loses no update",
	promise: "A resource refuses 0, and every token below the largest that it has seen. Then no update is lost, and no update of a present holder is refused.",
	sources: []string{kleppmann, ubgoToken},
	shows:   locker.Fencing,
	chance:  true,
	needs:   []need{tokens, expire},
	body:    fencedCounter,
	lasts:   func(h Harness) time.Duration { return 2 * fencedTime(h) },
}}

// lateWrite has A read and pause past its TTL, B change the value, and A wake and write.
func lateWrite(e *env) {
	bare := &register{}
	e.overtaken(bare, func(a *party, taken uint64, read int) {
		_ = a.writes(bare, taken, read+1)
	})
	if bare.lost() != 1 {
		e.failf("this test shows nothing here: without a guard A's late write should lose B's update, and %d were lost", bare.lost())
	}
	for when, token := range map[string]func(a *party, taken uint64) uint64{
		"when it got the lock": func(_ *party, taken uint64) uint64 { return taken },
		"when it wrote":        func(a *party, _ uint64) uint64 { return a.token() },
	} {
		guarded := &register{guarded: true}
		e.overtaken(guarded, func(a *party, taken uint64, read int) {
			if late := token(a, taken); a.writes(guarded, late, read+1) == nil {
				e.failf("A read, and was paused past its TTL; B wrote with the token %d; "+
					"then A's write was accepted with %d, the token it had %s: %d update lost",
					guarded.largest, late, when, guarded.lost())
			}
		})
	}
}

// overtaken has A read and pause, and then write.
func (e *env) overtaken(r *register, write func(a *party, taken uint64, read int)) {
	e = e.story()
	name := e.name()
	a, sleep, wake := e.sleeper(name)
	b := e.party("B", name, e.long)
	a.take()
	taken := a.token()
	read, err := a.reads(r, taken)
	if err != nil {
		e.doubtf("A's read, just after Lock: %v", err)
	}
	sleep()
	b.lockBy(e.ttl+slack(e.ttl)+e.patience, "A was paused past its TTL of %v", e.ttl)
	e.increment(b, r)
	wake()
	write(a, taken, read)
	_ = a.unlock()
	b.drop()
}

// sleeper is A, which really sleeps where it can have a process of its own.
func (e *env) sleeper(name string) (a *party, sleep, wake func()) {
	if e.h.Faults.Process == nil {
		return e.party("A", name, e.ttl), func() {}, func() {}
	}
	p := e.process("A", name, e.ttl)
	return p.party, p.stop, p.resume
}

// increment has a holder add 1, which the guard must allow.
func (e *env) increment(p *party, r *register) {
	token := p.token()
	n, err := p.reads(r, token)
	if err == nil {
		err = p.writes(r, token, n+1)
	}
	if err != nil {
		if held := p.extend(); held != nil {
			e.doubtf("%s's write was refused: %v; its hold is lost: %v", p.who, err, held)
		}
		e.failf("%s holds the lock, but its write was refused: %v", p.who, err)
	}
}

func fencedTime(h Harness) time.Duration { return max(someSeconds, 3*h.TTL) }

// fencedCounter has many clients change two values, one of which is guarded. One of them pauses past its TTL, between
// reading and writing, in each of its holds.
func fencedCounter(e *env) {
	ctx, cancel := context.WithTimeout(e.Context(), fencedTime(e.h))
	defer cancel()
	c := &count{env: e, ctx: ctx, bare: &register{}, guarded: &register{guarded: true}}
	name := e.name()
	var clients []func()
	for i := range contenders {
		p := e.party(fmt.Sprintf("client %d", i+1), name, e.ttl)
		clients = append(clients, func() {
			for ctx.Err() == nil {
				c.add(p, i == 0)
			}
		})
	}
	e.together(clients...)
	if lost := c.guarded.lost(); lost != 0 {
		e.failf("%d writes were accepted by a guard that refuses stale tokens, and made the value %d: updates lost: %d",
			c.guarded.writes, c.guarded.value, lost)
	}
	if c.guarded.writes == 0 {
		e.doubtf("no client could write in %v", fencedTime(e.h))
	}
	e.Logf("guarded: %d writes, none lost, %d refused; without a guard: %d writes, %d of them lost",
		c.guarded.writes, c.guarded.refused, c.bare.writes, c.bare.lost())
}

// count is that of many clients.
type count struct {
	env           *env
	ctx           context.Context
	bare, guarded *register
}

// add is one hold, in which p adds 1. A guard that refuses the one who holds to the end has seen a token
// too large for another.
func (c *count) add(p *party, sleepy bool) {
	ctx, cancel := context.WithTimeout(c.ctx, 4*p.ttl)
	defer cancel()
	if err := p.lock(ctx); err != nil {
		sleepUntil(ctx, 5*time.Millisecond)
		return
	}
	token := p.token()
	n, err := c.guarded.read(token)
	careless, _ := c.bare.read(token)
	if sleepy { // longer than the hold, also at a backend with a coarse clock
		time.Sleep(p.ttl + rand.N(p.ttl+coarse))
	} else {
		pauseWithin(p.ttl / 2)
	}
	if err == nil {
		err = c.guarded.write(token, n+1)
	}
	_ = c.bare.write(token, careless+1)
	if err == nil {
		pauseWithin(p.ttl / 8)
		_, err = c.guarded.read(token)
	}
	if unlocked := p.unlock(); unlocked == nil && err != nil {
		p.env.failf("%s held the lock from before it read and wrote until after, as its Unlock says, and was refused: %v", p.who, err)
	}
}

// pauseWithin is a short pause, mostly: none, or up to 2 ms.
func pauseWithin(long time.Duration) {
	if rand.IntN(10) == 0 {
		time.Sleep(rand.N(long))
		return
	}
	time.Sleep(max(0, rand.N(4*time.Millisecond)-2*time.Millisecond))
}
