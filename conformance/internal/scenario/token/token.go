// Package token has the scenarios of fencing tokens.
package token

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/contention"
	"github.com/go-locker/locker/conformance/internal/fault"
	"github.com/go-locker/locker/conformance/internal/harness"
	"github.com/go-locker/locker/conformance/internal/need"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/conformance/internal/scenario"
	"github.com/go-locker/locker/conformance/internal/source"
)

// Rows are the scenarios of tokens.
var Rows = []scenario.Row{{
	Name:    "tokens rise from process to process",
	Promise: "A hold's token is larger than that of every earlier hold of the name in any process.",
	Sources: []string{source.Kleppmann, source.Chubby},
	Shows:   locker.Fencing,
	Needs:   []need.Need{need.Tokens},
	Body: func(e *party.Env) {
		a, b, c := e.Trio(e.Long)
		var tokens party.Sequence
		for round := range 6 {
			for _, p := range []*party.Party{a, b, c} {
				if round%2 == 0 || p.TryLock(e.Context()) != nil {
					p.Take()
				}
				tokens.Next(p, fmt.Sprintf("%s's hold %d", p.Who, round+1))
				p.Release()
			}
		}
	},
}, {
	Name:    "tokens rise over the Lockers of one client",
	Promise: "A hold's token is larger than that of every earlier hold of the name in any process.",
	Sources: []string{source.Kleppmann, source.MutexSession},
	Shows:   locker.Fencing,
	Needs:   []need.Need{need.Clients, need.Tokens},
	Body: func(e *party.Env) {
		name := e.Name()
		of := e.Client(e.Long, false)
		var tokens party.Sequence
		for i := range 5 {
			p := of(fmt.Sprintf("Locker %d", i+1), name)
			p.Take()
			tokens.Next(p, fmt.Sprintf("%s's hold", p.Who))
			p.Release()
		}
	},
}, {
	Name:    "tokens rise after an expiry",
	Promise: "A hold's token is larger than that of every earlier hold, also of one that expired.",
	Sources: []string{source.Kleppmann},
	Shows:   locker.Fencing,
	Needs:   []need.Need{need.Tokens, need.Expire},
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.TTL, e.Long)
		var tokens party.Sequence
		a.Take()
		tokens.Next(a, "A's hold, which expired")
		b.LockBy(e.TTL+e.Patience, "A's TTL is over")
		tokens.Next(b, "B's hold")
		b.Release()
		_ = a.Unlock()
		a.Take()
		tokens.Next(a, "A's second hold")
		a.Release()
	},
}, {
	Name:    "tokens rise in the order of the holds, with many contending",
	Promise: "A hold's token is larger than that of every earlier hold of the name in any process.",
	Sources: []string{source.Kleppmann, source.UbgoToken},
	Chance:  true,
	Shows:   locker.Fencing,
	Needs:   []need.Need{need.Tokens},
	Body:    func(e *party.Env) { contention.Rising(e, contention.Run(e, e.Processes(e.Name()), contention.Linger)) },
}, {
	Name:    "Extend does not change the token",
	Promise: "The token is unchanged by Extend.",
	Needs:   []need.Need{need.Tokens, need.Extends},
	Body: func(e *party.Env) {
		a := e.Party("A", e.Name(), e.Long)
		a.Take()
		token := a.Token()
		for range 3 {
			a.Prolong()
			a.KeepsToken(token, "after Extend")
		}
		a.Release()
	},
}, {
	Name:    "the token is 0 without a hold",
	Promise: "The token is 0 when nothing is held: before Lock, and after Unlock.",
	Sources: []string{source.RedissonToken},
	Needs:   []need.Need{need.Tokens},
	Body: func(e *party.Env) {
		a := e.Party("A", e.Name(), e.Long)
		for i := range 2 {
			a.WantNoToken(fmt.Sprintf("after %d times Lock and Unlock", i))
			a.Take()
			a.SomeToken("A's hold")
			a.Release()
		}
		a.WantNoToken("after Unlock")
	},
}, {
	Name:    "the token is 0 after a loss",
	Promise: "The token is 0 when nothing is held: from the moment of a loss.",
	Sources: []string{source.RedissonToken},
	Needs:   []need.Need{need.Tokens, need.Expire},
	Body: func(e *party.Env) {
		a, b := e.Rivals(e.TTL, e.Long)
		a.TakeOver(b)
		a.AwaitExpiry()
		a.WantNoToken("after its TTL, when B has the lock")
		_ = a.Unlock()
		a.WantNoToken("after the Unlock of its lost hold")
		b.Release()
	},
}}

// Counter are the scenarios of a resource that checks tokens.
var Counter = []scenario.Row{{
	Name: "a late write with the token of a lost hold is refused",
	Promise: "A resource refuses 0, and every token below the largest that it has seen. Then no " +
		"holder's update is lost, even if an earlier holder writes late.",
	Sources: []string{source.Kleppmann, source.RedissonToken},
	Shows:   locker.Fencing,
	Needs:   []need.Need{need.Tokens, need.Expire},
	// A reads and pauses past its TTL, B changes the value, and A wakes and writes.
	Body: func(e *party.Env) {
		bare := &party.Register{}
		overtaken(e, bare, func(a *party.Party, taken uint64, read int) {
			_ = a.Writes(bare, taken, read+1)
		})
		if bare.Lost() != 1 {
			e.Failf("this test shows nothing here: without a guard A's late write should lose B's update, and %d were lost", bare.Lost())
		}
		for when, token := range map[string]func(a *party.Party, taken uint64) uint64{
			"when it got the lock": func(_ *party.Party, taken uint64) uint64 { return taken },
			"when it wrote":        func(a *party.Party, _ uint64) uint64 { return a.Token() },
		} {
			guarded := &party.Register{Guarded: true}
			overtaken(e, guarded, func(a *party.Party, taken uint64, read int) {
				if late := token(a, taken); a.Writes(guarded, late, read+1) == nil {
					e.Failf("A read, and was paused past its TTL; B wrote with the token %d; "+
						"then A's write was accepted with %d, the token it had %s: %d update lost",
						guarded.Largest, late, when, guarded.Lost())
				}
			})
		}
	},
}, {
	Name: "a counter guarded by tokens loses no update",
	Promise: "A resource refuses 0, and every token below the largest that it has seen. Then no " +
		"update is lost, and no update of a present holder is refused.",
	Sources: []string{source.Kleppmann, source.UbgoToken},
	Shows:   locker.Fencing,
	Chance:  true,
	Needs:   []need.Need{need.Tokens, need.Expire},
	// Many clients increment two values, one of which is guarded. One client pauses past its TTL,
	// between reading and writing, in each of its holds.
	Body: func(e *party.Env) {
		ctx, cancel := context.WithTimeout(e.Context(), fencedTime(e.Harness))
		defer cancel()
		bare, guarded := &party.Register{}, &party.Register{Guarded: true}
		name := e.Name()
		var clients []func()
		for i := range party.Contenders {
			p := e.Party(fmt.Sprintf("client %d", i+1), name, e.TTL)
			clients = append(clients, func() {
				for ctx.Err() == nil {
					add(ctx, p, bare, guarded, i == 0)
				}
			})
		}
		e.Together(clients...)
		if lost := guarded.Lost(); lost != 0 {
			e.Failf("%d writes were accepted by a guard that refuses stale tokens, and made the value %d: updates lost: %d",
				guarded.Writes, guarded.Value, lost)
		}
		if guarded.Writes == 0 {
			e.Doubtf("no client could write in %v", fencedTime(e.Harness))
		}
		e.Logf("guarded: %d writes, none lost, %d refused; without a guard: %d writes, %d of them lost",
			guarded.Writes, guarded.Refused, bare.Writes, bare.Lost())
	},
	Lasts: func(h harness.Harness) time.Duration { return 2 * fencedTime(h) },
}}

// overtaken has A read and pause, and then write.
func overtaken(e *party.Env, r *party.Register, write func(a *party.Party, taken uint64, read int)) {
	e = e.Story()
	name := e.Name()
	a, sleep, wake := sleeper(e, name)
	b := e.Party("B", name, e.Long)
	a.Take()
	taken := a.Token()
	read, err := a.Reads(r, taken)
	if err != nil {
		e.Doubtf("A's read, just after Lock: %v", err)
	}
	sleep()
	b.LockBy(e.TTL+party.Slack(e.TTL)+e.Patience, "A was paused past its TTL of %v", e.TTL)
	increment(e, b, r)
	wake()
	write(a, taken, read)
	_ = a.Unlock()
	b.Drop()
}

// sleeper makes A, which is really stopped if it can have a process of its own.
func sleeper(e *party.Env, name string) (a *party.Party, sleep, wake func()) {
	if e.Harness.Faults.Process == nil {
		return e.Party("A", name, e.TTL), func() {}, func() {}
	}
	p := fault.StartProcess(e, "A", name, e.TTL)
	return p.Party, p.Stop, p.Resume
}

// increment has a holder add 1, which the guard must allow.
func increment(e *party.Env, p *party.Party, r *party.Register) {
	token := p.Token()
	n, err := p.Reads(r, token)
	if err == nil {
		err = p.Writes(r, token, n+1)
	}
	if err != nil {
		if held := p.Extend(); held != nil {
			e.Doubtf("%s's write was refused: %v; its hold is lost: %v", p.Who, err, held)
		}
		e.Failf("%s holds the lock, but its write was refused: %v", p.Who, err)
	}
}

func fencedTime(h harness.Harness) time.Duration { return max(party.SomeSeconds, 3*h.TTL) }

// add has p add 1 in one hold. If the guard refuses p, who held the lock throughout, it has seen
// too large a token of another holder.
func add(ctx context.Context, p *party.Party, bare, guarded *party.Register, sleepy bool) {
	ctx, cancel := context.WithTimeout(ctx, 4*p.TTL)
	defer cancel()
	if err := p.Lock(ctx); err != nil {
		party.SleepUntil(ctx, 5*time.Millisecond)
		return
	}
	token := p.Token()
	n, err := guarded.Read(token)
	careless, _ := bare.Read(token)
	if sleepy { // longer than the hold, also at a backend with a coarse clock
		time.Sleep(p.TTL + rand.N(p.TTL+party.Coarse))
	} else {
		pauseWithin(p.TTL / 2)
	}
	if err == nil {
		err = guarded.Write(token, n+1)
	}
	_ = bare.Write(token, careless+1)
	if err == nil {
		pauseWithin(p.TTL / 8)
		_, err = guarded.Read(token)
	}
	if unlocked := p.Unlock(); unlocked == nil && err != nil {
		p.Env.Failf("%s held the lock from before it read and wrote until after, as its Unlock says, and was refused: %v", p.Who, err)
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
