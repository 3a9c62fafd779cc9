// Package network has the scenarios of connections that break, are slow, or lose replies.
package network

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/fault"
	"github.com/go-locker/locker/conformance/internal/need"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/conformance/internal/power"
	"github.com/go-locker/locker/conformance/internal/scenario"
	"github.com/go-locker/locker/conformance/internal/source"
	"github.com/go-locker/locker/internal/stdio"
)

// Rows are the scenarios of connections.
var Rows = []scenario.Row{{
	Name: "a holder that is cut off knows in time, and harms nobody when it is back",
	Promise: "A hold expires after one TTL, and its holder knows by then. A request that the " +
		"holder sends later changes nothing, because the backend checks the owner.",
	Sources: []string{source.Kleppmann, source.Chubby},
	Needs:   []need.Need{need.Links, need.Expire},
	Body: func(e *party.Env) {
		a, w := fault.Linked(e, "A", e.Name(), e.TTL)
		b := e.Party("B", a.Name, e.Long)
		a.Take()
		w.Hold()
		b.LockBy(e.TTL+party.Slack(e.TTL), "A, whose TTL is %v, was cut off", e.TTL)
		a.WantNoToken("when it is cut off and B has the lock")
		a.Want("Extend, cut off and past its TTL", a.Extend(), locker.ErrLost)
		a.Want("Unlock, cut off and past its TTL", a.Unlock(), locker.ErrLost)
		w.Release()
		time.Sleep(e.Settle()) // A's held requests arrive
		b.Still("A is back")
		b.Excludes(a, e.Settle())
		b.Release()
	},
}, {
	Name: "a hold outlives the connection that it was taken on",
	Promise: "A hold lasts one TTL unless it is extended or lost. If a connection breaks, the " +
		"hold goes on, or its holder is told that it is lost.",
	Needs: []need.Need{need.Links},
	Body: func(e *party.Env) {
		a, w := fault.Linked(e, "A", e.Name(), e.Long)
		b := e.Party("B", a.Name, e.Long)
		a.Take()
		w.Reset()
		ctx, cancel := context.WithTimeout(e.Context(), e.Prompt/2)
		defer cancel()
		a.Outlasts(ctx, b)
		a.Drop()
		b.Promptly("A has unlocked").Release()
	},
}, {
	Name: "a hold goes on, or its loss is told, when one server does not answer an Extend",
	Promise: "A hold lasts until its Deadline, or until its holder is told of the loss, even if " +
		"one of the servers cannot be reached while the holder extends the hold.",
	Sources: []string{source.RedsyncExtend},
	Needs:   []need.Need{need.Links, need.Extends},
	Shows:   locker.Exclusive,
	// A extends its hold while it cannot reach one of the servers, chosen at random.
	Body: func(e *party.Env) {
		a, w := fault.Linked(e, "A", e.Name(), e.Long)
		b := e.Party("B", a.Name, e.Long)
		a.Take()
		servers := w.Addresses()
		if len(servers) < 3 {
			e.Skip("the Locker uses fewer than three servers, so it does not work if one of them does not answer")
		}
		mend := w.Sever(servers[rand.N(len(servers))])
		retried := min(3*time.Second, e.Long*3/4) // by a client that cannot reach a server
		ctx, cancel := context.WithTimeout(e.Context(), retried)
		defer cancel()
		extended := make(chan struct{})
		e.Spawn(func() {
			defer close(extended)
			_ = a.ExtendWith(ctx)
		})
		select {
		case <-extended:
		case <-time.After(e.Prompt): // it may need that server
		}
		ctx, cancel = context.WithTimeout(e.Context(), retried)
		defer cancel()
		a.Outlasts(ctx, b)
		mend()
		a.Drop()
	},
}, {
	Name:    "on a slow link Lock succeeds only with half its TTL left",
	Promise: "Lock succeeds only with at least half a TTL left, and a hold is counted from before the request was sent.",
	Sources: []string{source.Antirez, source.Kleppmann},
	Needs:   []need.Need{need.Links, need.Expire},
	Body: func(e *party.Env) {
		name, ttl := e.Name(), e.Lifetime(2*time.Second)
		a, w := fault.Linked(e, "A", name, ttl)
		b := e.Party("B", name, ttl)
		a.Connect()
		w.Delay(ttl * 35 / 100) // a round trip takes more than half a TTL
		if err := a.LockWithin(ttl); err == nil {
			before := time.Now()
			if a.Token() != 0 {
				if _, ok := party.Can[power.Deadliner](a.Locker, stdio.CanDeadline); ok {
					e.Within(a, "Lock")
				}
				if err := b.LockWithin(ttl/2 - party.Pause); err == nil {
					e.Failf("A's Lock succeeded on a slow link, and B got the lock %v later: half a TTL is %v", time.Since(before), ttl/2)
				}
			}
			w.Mend()
			_ = a.Unlock()
			b.LockFreed("A has unlocked")
			_ = b.Unlock()
			return
		}
		w.Mend()
		b.LockFreed("A's Lock failed").Release()
	},
}, {
	Name: "a hold that was granted over a slow link is over before another's begins",
	Promise: "A hold lasts one TTL, counted from before the request that granted it was sent: " +
		"the first, if it was sent again because no reply came.",
	Sources: []string{source.Antirez, source.Kleppmann},
	Needs:   []need.Need{need.Links, need.Expire},
	Body: func(e *party.Env) {
		e.Together(func() {
			// A's hold, granted over a slow link, is over when B gets the lock.
			name, ttl := e.Name(), e.Lifetime(time.Second)
			a, w := fault.Linked(e, "A", name, ttl)
			b := e.Party("B", name, e.Long)
			a.Connect()
			delay := ttl / 5
			// A Locker that sends several requests may run out of time before it has the lock.
			for ; ; delay /= 2 {
				w.Delay(delay)
				err := a.LockWithin(e.Patience)
				if err == nil {
					break
				}
				if delay < ttl/40 {
					e.Skip(fmt.Sprintf("Lock fails on a slow link, even if a request takes only %v, there and back: %v", 2*delay, err))
				}
			}
			b.LockBy(ttl+e.Patience, "A's TTL of %v is over", ttl)
			if why := a.Believes(); why != "" {
				e.Failf("B has the lock, while A, whose request took %v to arrive, still holds it, by %s", delay, why)
			}
			w.Mend()
			_ = a.Unlock()
			b.Release()
		}, func() {
			// A's hold is over when B gets the lock, though A's first reply was lost and its
			// request was retried.
			e := e.Story()
			name, ttl := e.Name(), e.Lifetime(time.Second)
			a, w := fault.Link(e, "A", name, ttl)
			b := e.Party("B", name, e.Long)
			a.Connect()
			w.LoseReplies()
			done := a.Start(e.Context())
			time.Sleep(ttl * 2 / 5)
			w.Mend()
			if <-done != nil {
				return
			}
			b.LockBy(ttl+e.Patience, "A's TTL of %v is over", ttl)
			if why := a.Believes(); why != "" {
				e.Failf("B has the lock, while A, whose first reply was lost, still holds it, by %s", why)
			}
			_ = a.Unlock()
			b.Release()
		})
	},
}, {
	Name:    "a waiter that is cut off does not hold up those behind it",
	Promise: "A waiter from which nothing more is heard is passed over within one TTL.",
	Sources: []string{source.ZkRecipe},
	Needs:   []need.Need{need.Links},
	Body: func(e *party.Env) {
		name, ttl := e.Name(), e.Lifetime(time.Second)
		b, w := fault.Linked(e, "B", name, ttl)
		a, c := e.Party("A", name, e.Long), e.Party("C", name, ttl)
		a.PassesOver(b, c, w.Hold, "is cut off")
	},
}, {
	Name:    "a waiter that was cut off for longer than its TTL does not get the lock of another",
	Promise: "Lock succeeds only when nobody else has the lock, even if the backend has removed the waiter from its queue long ago.",
	Sources: []string{source.JepsenEtcd},
	Needs:   []need.Need{need.Links},
	Shows:   locker.Exclusive,
	// The holder unlocks, and another takes the lock, while a waiter is cut off. Then the replies
	// to the waiter arrive at once.
	Body: func(e *party.Env) {
		name, ttl := e.Name(), e.Lifetime(time.Second)
		b, w := fault.Linked(e, "B", name, ttl)
		a, c := e.Party("A", name, e.Long), e.Party("C", name, e.Long)
		a.Take()
		waiting := b.Start(e.Context())
		time.Sleep(3 * e.Settle()) // it waits
		w.Hold()
		time.Sleep(ttl + party.Slack(ttl))
		a.Release()
		what := fmt.Sprintf("A has unlocked, and B, which waited with a TTL of %v, was cut off for that long before", ttl)
		c.LockBy(ttl+party.Slack(ttl)+2*time.Second, "%s", what) // B may have it for a TTL
		w.Release()
		select {
		case err := <-waiting:
			if err == nil {
				c.Overlap(b)
			}
		case <-time.After(e.Prompt):
		}
		c.Still("B is back")
		c.Release()
	},
}, {
	Name: "a waiter whose connections were broken is served, or told",
	Promise: "Lock waits until the caller has the lock. If a connection breaks, it does not wait " +
		"for ever: it gets the lock, or returns an error.",
	Sources: []string{source.RueidisErrors},
	Needs:   []need.Need{need.Links},
	Body: func(e *party.Env) {
		name := e.Name()
		b, w := fault.Linked(e, "B", name, e.Long)
		a, c := e.Party("A", name, e.Long), e.Party("C", name, e.Long)
		a.Take()
		done := b.StartLock(e.Context())
		w.Reset()
		time.Sleep(e.Settle())
		a.Release()
		select {
		case err := <-done:
			if errors.Is(err, locker.ErrHeld) {
				e.Failf("B's Lock, when its connections broke and ctx had not ended: %v", err)
			}
			if err == nil {
				b.Release()
			}
		case <-time.After(e.Prompt + e.Patience):
			e.Doubtf("%v after A's Unlock, B, whose connections broke, has neither the lock nor an error", e.Prompt+e.Patience)
		}
		c.AfterOutage("nobody has the lock").Release()
	},
}, {
	Name:    "a renewed hold outlives a renewal that fails",
	Promise: "A renewal that fails is repeated: an outage of a third of the TTL ends no renewed hold.",
	Sources: []string{source.OwnPrograms, source.Chubby},
	Needs:   []need.Need{need.Linkers, need.Renews},
	// All traffic is dropped between three tenths and two thirds of the TTL, and all
	// connections break: this hits the first or the second renewal.
	Body: func(e *party.Env) {
		name, ttl := e.Name(), e.Lifetime(3*time.Second)
		b := e.Party("B", name, e.Long)
		of, w := fault.LinkedClient(e, ttl, true)
		a := of("A", name)
		w.Takes(a)
		time.Sleep(ttl * 3 / 10)
		w.Hold()
		time.Sleep(ttl * 35 / 100)
		w.Mend()
		time.Sleep(ttl * 13 / 10)
		what := fmt.Sprintf("for %v of its TTL of %v what A sent was lost; %v later", ttl*35/100, ttl, ttl*13/10)
		lives(e, a, b, what)
		a.Drop()
	},
}, {
	Name: "a renewed hold lasts, and can be unlocked, though no new connection can be made",
	Promise: "A server that takes no more connections ends no hold: a hold is renewed, and " +
		"Unlock frees the lock, on connections that are open.",
	Sources: []string{source.FullServers},
	Needs:   []need.Need{need.Linkers, need.Renews},
	Body: func(e *party.Env) {
		name, ttl := e.Name(), e.Lifetime(time.Second)
		b := e.Party("B", name, e.Long)
		of, w := fault.LinkedClient(e, ttl, true)
		a := of("A", name)
		w.Takes(a)
		w.Refuse()
		time.Sleep(2 * ttl)
		lives(e, a, b, fmt.Sprintf("for twice its TTL of %v no new connection could be made, and", ttl))
		a.Release()
		b.Promptly("A has unlocked").Release()
	},
}, {
	Name: "connections that fall silent are left for new ones within a TTL",
	Promise: "When nothing arrives on open connections any more, and new ones work, Lock takes a " +
		"free lock within about one TTL, Unlock frees the lock, a waiter gets what was unlocked, " +
		"and no renewed hold is lost.",
	Sources: []string{source.LostTables},
	Needs:   []need.Need{need.Linkers, need.Shares, need.Renews},
	// The bound is a TTL, because a request may have a time limit of half a TTL before it is
	// retried on a new connection.
	Body: func(e *party.Env) {
		ttl := e.Lifetime(3 * time.Second)
		limit := ttl + e.Prompt
		fallen := fmt.Sprintf("A's connections have fallen silent, with a TTL of %v", ttl)
		atLast := func(a *party.Party) {
			ctx, cancel := context.WithTimeout(e.Context(), limit)
			defer cancel()
			if err := a.LockAtLast(ctx); err != nil {
				e.Doubtf("%s, and for %v it does not get a free lock: %v", fallen, limit, err)
			}
			a.Release()
		}
		e.Together(func() {
			a, _, w := busy(e, ttl, false)
			a.Release()
			w.Hush()
			atLast(a)
		}, func() {
			a, b, w := busy(e, ttl, false)
			w.Hush()
			a.Sound("Unlock, on connections that have fallen silent,", a.Unlock())
			b.Promptly("A has unlocked").Release()
		}, func() {
			a, b, w := busy(e, ttl, false)
			a.Release()
			b.Take()
			e.Spawn(func() {
				time.Sleep(3 * e.Settle()) // A waits
				w.Hush()
				time.Sleep(e.Settle())
				b.Release()
			})
			atLast(a)
		}, func() {
			a, b, w := busy(e, ttl, true)
			time.Sleep(ttl / 2)
			w.Hush()
			time.Sleep(3 * ttl / 2)
			lives(e, a, b, fallen+", and")
			a.Drop()
		})
	},
}}

// lives ends the trial unless a, whose hold is renewed, still holds the lock.
func lives(e *party.Env, a, b *party.Party, what string) {
	if b.LockWithin(e.Settle()) == nil {
		e.Doubtf("%s B got the lock, which A renews", what)
	}
	if a.Believes() == "" {
		e.Doubtf("%s A has lost the lock, which it renews", what)
	}
}

// busy makes a holder, a, whose client has locked and unlocked several names at once, and so may
// have several connections; and b, a party that contends for the lock.
func busy(e *party.Env, ttl time.Duration, renew bool) (a, b *party.Party, w *fault.Wire) {
	e = e.Story()
	name := e.Name()
	b = e.Party("B", name, ttl)
	of, w := fault.LinkedClient(e, ttl, renew)
	a = of("A", name)
	w.Takes(a)
	w.Delay(30 * time.Millisecond) // so that they need connections of their own
	defer w.Delay(0)
	var others sync.WaitGroup
	for range 6 {
		other := of("A, by another name", e.Name())
		others.Go(func() {
			if other.LockWithin(e.Patience) == nil {
				_ = other.Unlock()
			}
		})
	}
	others.Wait()
	return a, b, w
}

// Replies are the scenarios of lost replies.
var Replies = []scenario.Row{{
	Name:    "a take whose reply was lost leaves nothing behind",
	Promise: "On any error of Lock the caller holds nothing, and what the attempt left behind is cleaned up, or expires within one TTL.",
	Sources: []string{source.MutexReply, source.RueidisOverrun, source.ZkContext},
	Needs:   []need.Need{need.Links},
	Body: func(e *party.Env) {
		name, ttl := e.Name(), e.Lifetime(time.Second)
		a, w := fault.Linked(e, "A", name, ttl)
		b := e.Party("B", name, ttl)
		a.Connect()
		w.LoseReplies()
		err, _ := a.Interrupted("Lock", a.Lock)
		a.NotTaken("Lock", err, "no reply arrives")
		a.WantNoToken("after a Lock that failed")
		b.LockFreed("A gave up, and its TTL is over").Release()
		w.Mend()
		a.AfterOutage("nobody has the lock").Release()
	},
}, {
	Name: "a Lock whose replies are lost for a while is not held up by itself",
	Promise: "If the reply to a request was lost, and the request is sent again, it succeeds, or " +
		"what it took is cleaned up. The Locker never mistakes its own hold for another's.",
	Sources: []string{source.RedsyncReply},
	Needs:   []need.Need{need.Links},
	Body: func(e *party.Env) {
		ttl := e.Lifetime(time.Second)
		a, err := answeredLate(e, ttl, ttl+party.Slack(ttl)+e.Prompt)
		if errors.Is(err, locker.ErrHeld) {
			e.Failf("A's Lock, whose first reply was lost: %v; nobody else wants the lock", err)
		}
		if err != nil {
			a.LockFreed("nobody has the lock")
		}
		a.Still("it has just been locked")
		a.Release()
	},
}, {
	Name: "a Lock whose first reply was lost does not wait for its own TTL to end",
	Promise: "If the reply to a request was lost, and the request is sent again, it succeeds, or " +
		"what it took is cleaned up. Nobody waits for their own hold.",
	Sources: []string{source.OwnPrograms, source.RedsyncReply},
	Needs:   []need.Need{need.Links},
	// The TTL is so long that a Lock which waits for it to end exceeds the limit.
	Body: func(e *party.Env) {
		a, err := answeredLate(e, e.Long+e.TTL, e.Settle()+2*e.Prompt)
		if err != nil {
			a.LockBy(e.Prompt, "A's Lock, whose first reply was lost, failed, and nobody has the lock")
		}
		a.Drop()
	},
}, {
	Name:    "an Unlock whose reply was lost has freed the lock",
	Promise: "After any error of Unlock the caller no longer has the hold, and the backend ends it within one TTL.",
	Sources: []string{source.RedislockReply},
	Needs:   []need.Need{need.Links},
	Body: func(e *party.Env) {
		name, ttl := e.Name(), e.Lifetime(time.Second)
		a, w := fault.Linked(e, "A", name, ttl)
		b := e.Party("B", name, ttl)
		a.Take()
		w.LoseReplies()
		a.UnlockFails(time.Now(), "no reply had arrived")
		b.LockFreed("A has unlocked").Release()
		w.Mend()
		a.AfterOutage("nobody has the lock").Release()
	},
}, {
	Name:    "a release that is sent again says nil or ErrLost, and frees the lock",
	Promise: "If the reply to a release was lost, and the release is sent again, it succeeds. In doubt it may say ErrLost.",
	Sources: []string{source.RedislockReply, source.MutexRetry},
	Needs:   []need.Need{need.Links},
	// The link is mended while A unlocks.
	Body: func(e *party.Env) {
		a, w := fault.Linked(e, "A", e.Name(), e.Long)
		b := e.Party("B", a.Name, e.Long)
		a.Take()
		left := e.Beside(a.Name)
		w.LoseReplies()
		stop := time.AfterFunc(party.Settle, w.Mend)
		defer stop.Stop()
		err := a.Unlock()
		if errors.Is(err, locker.ErrNotHeld) {
			e.Failf("A's Unlock of its hold, whose first reply was lost: %v", err)
		}
		left(b)
		if err == nil {
			b.Promptly("A's Unlock said nil")
		} else {
			b.LockFreed("A has unlocked")
		}
		b.Release()
		a.Want("second Unlock", a.Unlock(), locker.ErrNotHeld)
	},
}, {
	Name: "a release that is sent again never says nil if the hold had ended",
	Promise: "A release that is sent again succeeds if the first one ended the hold. But if the " +
		"hold had ended before the first one arrived, Unlock says ErrLost, never nil.",
	Needs: []need.Need{need.Links, need.Revokes},
	// A's first release request is lost. Another party holds the lock when the second one arrives.
	Body: func(e *party.Env) {
		a, w := fault.Linked(e, "A", e.Name(), e.Long)
		b := e.Party("B", a.Name, e.Long)
		a.Take()
		fault.Revoke(e, a.Name)
		b.Promptly("A's hold was ended at the server")
		w.HoldRequests()
		stop := time.AfterFunc(party.Settle, w.Mend) // the held request is lost
		defer stop.Stop()
		switch err := a.Unlock(); {
		case err == nil:
			e.Failf("A's hold was ended at the server, and B has the lock; A's Unlock, whose first request was lost, said nil")
		case errors.Is(err, locker.ErrNotHeld):
			e.Failf("A's Unlock of a hold that was ended at the server: %v; want ErrLost", err)
		}
		b.Still("A has unlocked what it lost")
		b.Release()
	},
}, {
	Name:    "an Extend whose reply was lost leaves the hold as it was",
	Promise: "After an error of Extend other than ErrLost the old deadline stands.",
	Needs:   []need.Need{need.Links, need.Extends},
	Body: func(e *party.Env) {
		name, ttl := e.Name(), e.Lifetime(2*time.Second)
		a, w := fault.Linked(e, "A", name, ttl)
		a.Take()
		token, deadline := a.Token(), a.Deadline()
		w.LoseReplies()
		ctx, cancel := context.WithTimeout(e.Context(), party.Settle)
		defer cancel()
		start := time.Now()
		err := a.Call("Extend", e.Patience+ttl, func() error { return a.Locker.Extend(ctx) })
		switch took := time.Since(start); {
		case err == nil:
			e.Failf("A's Extend said nil though no reply had arrived")
		case took > ttl/2 && !need.Cancels.Met(e.Harness):
			e.Skip(fmt.Sprintf("an extend with a limit_ms of %d took %v, with a TTL of %v: it may, "+
				"and what it leaves is over", stdio.Milliseconds(party.Settle), took, ttl))
		case errors.Is(err, locker.ErrLost), took > ttl/2:
			e.Doubtf("A's Extend, whose reply was lost: %v, after %v, with a TTL of %v; its ctx ended after %v", err, took, ttl, party.Settle)
		}
		switch now := a.Deadline(); {
		case now.Before(deadline):
			e.Failf("A's Extend failed, and its Deadline is %v earlier", deadline.Sub(now))
		case now.After(deadline): // an earlier reply may have been in flight
			e.Doubtf("A's Extend failed, and its Deadline is %v later", now.Sub(deadline))
		}
		if now := a.Token(); now != token {
			e.Doubtf("A's token was %d, and after an Extend that failed it is %d", token, now)
		}
		w.Mend()
		for end := time.Now().Add(ttl / 4); ; time.Sleep(party.Settle / 10) {
			if err = a.Extend(); err == nil || time.Now().After(end) {
				break
			}
		}
		if err != nil {
			e.Doubtf("A's Extend, when its link is mended: %v", err)
		}
		a.Release()
	},
}}

// answeredLate loses the reply to A's first request, so that a retry by A's client meets the hold
// of that request. It ends the trial unless A's Lock returns within limit.
func answeredLate(e *party.Env, ttl, limit time.Duration) (a *party.Party, err error) {
	a, w := fault.Linked(e, "A", e.Name(), ttl)
	a.Connect()
	w.LoseReplies()
	start := time.Now()
	done := a.StartLock(e.Context())
	w.Mend()
	select {
	case err = <-done:
	case <-time.After(limit):
		e.Doubtf("A's Lock, whose first reply was lost, has not returned after %v, with a TTL of "+
			"%v, though nobody else wants the lock", time.Since(start), ttl)
	}
	return a, err
}
