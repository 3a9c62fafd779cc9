// Package late has the scenarios of requests that arrive late.
package late

import (
	"context"
	"errors"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/fault"
	"github.com/go-locker/locker/conformance/internal/need"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/conformance/internal/scenario"
	"github.com/go-locker/locker/conformance/internal/source"
)

// Rows are the scenarios of late requests.
var Rows = []scenario.Row{{
	Name:    "a take that arrives late leaves nothing behind",
	Promise: "If a request arrives after clean-up, and takes the lock, this hold expires within one TTL.",
	Sources: []string{source.RedsyncStopped, source.Kleppmann},
	Needs:   []need.Need{need.Links},
	Body: func(e *party.Env) {
		lateTakes(e, func(e *party.Env, c *party.Party, w *fault.Wire, _ time.Time) {
			w.Release()
			time.Sleep(e.Settle())
			c.LockFreed("A's late request can be held for no more than its TTL")
			c.Still("it has the lock")
			c.Release()
		})
	},
}, {
	Name:    "a take that arrives more than a TTL late takes nothing",
	Promise: "The time of a hold counts from when its request was sent. So a request that arrives more than a TTL late takes nothing.",
	Sources: []string{source.Kleppmann},
	Needs:   []need.Need{need.Links},
	Body: func(e *party.Env) {
		lateTakes(e, func(e *party.Env, c *party.Party, w *fault.Wire, start time.Time) {
			time.Sleep(c.TTL + party.Slack(c.TTL))
			w.Release()
			time.Sleep(e.Settle())
			if err := c.LockWithin(c.TTL / 2); err != nil {
				e.Doubtf("A gave up its Lock, with a TTL of %v; a request of it arrived up to %v late, and then C's Lock of a free lock: %v",
					c.TTL, time.Since(start), err)
			}
			c.Release()
		})
	},
}, {
	Name:    "a take that breaks off between its requests leaves nothing behind for longer than its TTL",
	Promise: "Taking the lock and setting its TTL are one step: at whatever moment the client dies, the lock is free one TTL later.",
	Sources: []string{source.RedisDocs, source.OwnPrograms},
	Needs:   []need.Need{need.Links, need.Expire},
	// A is cut off, on all connections, after the first request of a take, after the second, and so
	// on.
	Body: func(e *party.Env) {
		ttl := e.Lifetime(time.Second)
		sent := sends(e, ttl, 0, (*party.Party).Take, (*party.Party).Release)
		var stories []func()
		for passed := 1; passed < sent && passed <= lastFew+1; passed++ {
			stories = append(stories, func() {
				e, name := e.Story(), e.Name()
				a, w := fault.Linked(e, "A", name, ttl)
				a.Connect()
				defer w.Mend()
				w.HoldLast(sent-passed, sent)
				ctx, cancel := context.WithCancel(e.Context())
				defer cancel()
				done := a.Start(ctx)
				if !w.AwaitHeld() {
					return // it sends less than before
				}
				b := e.Party("B", name, ttl)
				b.LockBy(ttl+party.Slack(ttl), "%d of about %d requests of A's Lock have arrived, "+
					"with a TTL of %v, and nothing of A's since", passed, sent, ttl)
				cancel()
				if err := <-done; err != nil {
					b.Release()
					return
				}
				// The requests that arrived were enough, as those of a quorum write may be: A may
				// have held the lock until B got it.
				if shows := a.Believes(); shows != "" {
					e.Failf("A's Lock succeeded, %d of about %d requests of it have arrived, B has the lock, and A has %s", passed, sent, shows)
				}
				b.Release()
			})
		}
		e.Together(stories...)
	},
}, {
	Name:    "an Unlock that arrives late leaves the new hold alone",
	Promise: "Unlock ends the caller's hold, never another owner's, whenever it arrives.",
	Sources: []string{source.RedisDocs, source.MutexRetry},
	Needs:   []need.Need{need.Links},
	Shows:   locker.Exclusive,
	Body: func(e *party.Env) {
		late(e, "Unlock", (*party.Party).Unlock, sends(e, e.TTL, 1, (*party.Party).Take, (*party.Party).Release), e.Settle())
	},
}, {
	Name:    "an Unlock that arrives late leaves the next hold of the same Locker alone",
	Promise: "Unlock ends the hold that it was called for, and no later one.",
	Sources: []string{source.MutexRetry},
	Needs:   []need.Need{need.Links},
	Shows:   locker.Exclusive,
	Body: func(e *party.Env) {
		sent := sends(e, e.TTL, 1, (*party.Party).Take, (*party.Party).Release)
		eachLast(e, sent, func(e *party.Env, last int) {
			a, w := fault.Linked(e, "A", e.Name(), e.TTL)
			a.Take()
			a.Release() // there is a connection
			a.Take()
			w.HoldLast(last, sent)
			switch err := a.Unlock(); {
			case last > 0 && !w.Held():
				return
			case err == nil && last == 0:
				e.Failf("A's Unlock said nil though no request arrived")
			}
			w.PassNew()
			w.Abandon()
			if err := a.LockWithin(e.TTL + party.Slack(e.TTL)); err != nil {
				return // it still waits for its first requests
			}
			token := a.Token()
			w.Release()
			time.Sleep(e.Settle())
			a.Still("the late Unlock of its hold before has arrived")
			a.KeepsToken(token, "after the late Unlock of its hold before")
			a.Release()
		})
	},
}, {
	Name:    "an Extend that arrives late leaves the new hold alone, and revives nothing",
	Promise: "Extend acts on the caller's hold alone, whenever it arrives.",
	Sources: []string{source.Kleppmann},
	Needs:   []need.Need{need.Links, need.Extends},
	Shows:   locker.Exclusive,
	Body: func(e *party.Env) {
		sent := sends(e, e.TTL, 1, (*party.Party).Take, func(p *party.Party) { p.Prolong() }, (*party.Party).Release)
		e.Together(
			// B's hold must not get A's TTL.
			func() { late(e, "Extend", (*party.Party).Extend, sent, 2*e.TTL) },
			// An Extend arrives when its hold has expired, and the lock is free. A's later requests
			// on new connections are not held back: they may cancel the Extend.
			func() {
				e := e.Story()
				ttl := e.Lifetime(2 * time.Second)
				a, w := fault.Linked(e, "A", e.Name(), ttl)
				b := e.Party("B", a.Name, ttl)
				a.Take()
				a.Prolong() // there is a connection
				defer w.Mend()
				w.HoldRequests()
				e.Spawn(func() { stranded(w) })
				_ = a.Extend() // nil if it was sent again
				time.Sleep(ttl + party.Slack(ttl))
				if !w.Held() {
					e.Doubtf("A has sent nothing that could arrive late")
				}
				w.Release()
				time.Sleep(5 * e.Settle()) // a server may take a while
				b.LockBy(ttl/2, "A's hold was over, its late Extend has arrived, the lock is free").Release()
			},
		)
	},
}}

// sends returns how many requests one step of a sequence of calls sends. It runs the sequence
// twice, because the first time connections are made, too.
func sends(e *party.Env, ttl time.Duration, step int, all ...func(*party.Party)) (sent int) {
	a, w := fault.Linked(e, "A", e.Name(), ttl)
	for range 2 {
		for i, do := range all {
			before := w.Requests()
			do(a)
			if i == step {
				sent = w.Requests() - before
			}
		}
	}
	return sent
}

// lastFew is the maximum of last requests of an operation that are held back without the others.
// Heartbeats of a session may make a count too large, by one or so.
const lastFew = 3

// eachLast runs a story with all requests of an operation held back (last 0) and, if it sends
// several, with the last one alone, the last two, and so on. The stories run side by side.
func eachLast(e *party.Env, sent int, story func(e *party.Env, last int)) {
	var stories []func()
	for last := range max(1, min(sent, lastFew+1)) {
		stories = append(stories, func() { story(e.Story(), last) })
	}
	e.Together(stories...)
}

// lateTake has A give up a Lock whose last requests, or all, were held back. The clean-up gets
// through, on new connections. It returns nil if no request is left to arrive.
func lateTake(e *party.Env, name string, ttl time.Duration, last, sent int) *fault.Wire {
	a, w := fault.Linked(e, "A", name, ttl)
	b := e.Party("B", name, ttl)
	a.Connect()
	w.HoldLast(last, sent)
	switch err := lockUntil(a, func() { stranded(w) }); {
	case errors.Is(err, locker.ErrHeld):
		e.Failf("A's Lock, when nobody had the lock and a request did not arrive: %v; want no ErrHeld", err)
	case last > 0 && (err == nil || !w.Held()): // held requests not needed, or none held
		return nil
	case err == nil:
		e.Doubtf("A's Lock succeeded, though no request arrived")
	case !w.Held():
		e.Doubtf("A's Lock has sent nothing that could arrive late")
	}
	w.Abandon()
	if last == 0 {
		b.Promptly("A gave up, and its request never arrived")
	} else {
		b.LockFreed("A gave up, and its last request never arrived")
	}
	b.Release()
	time.Sleep(e.Settle()) // clean-up is done
	return w
}

// lockUntil is Lock whose ctx ends when until returns.
func lockUntil(p *party.Party, until func()) error {
	ctx, cancel := context.WithCancelCause(p.Env.Context())
	defer cancel(nil)
	p.Env.Spawn(func() {
		until()
		cancel(party.ErrStop)
	})
	return p.Lock(ctx)
}

// stranded waits until a request is held back. From then on later requests on its connection are
// lost, and new connections work.
func stranded(w *fault.Wire) {
	w.AwaitHeld()
	time.Sleep(party.Settle / 2) // until all requests are
	w.Seal()
	w.PassNew()
}

// lateTakes runs a story with C, who wants the lock, and with requests of A's Lock that are yet to
// arrive.
func lateTakes(e *party.Env, story func(e *party.Env, c *party.Party, w *fault.Wire, start time.Time)) {
	ttl := e.Lifetime(time.Second)
	sent := sends(e, ttl, 0, (*party.Party).Take, (*party.Party).Release)
	eachLast(e, sent, func(e *party.Env, last int) {
		name, start := e.Name(), time.Now()
		if w := lateTake(e, name, ttl, last, sent); w != nil {
			defer w.Mend()
			story(e, e.Party("C", name, ttl), w, start)
		}
	})
}

// late has A make a call that sends the given number of requests, the last of which, or all, arrive
// when B has the lock. A third party tries to get the lock for the time watch.
func late(e *party.Env, op string, do func(*party.Party) error, sent int, watch time.Duration) {
	eachLast(e, sent, func(e *party.Env, last int) {
		a, w := fault.Linked(e, "A", e.Name(), e.TTL)
		a.Take()
		a.Sound(op, do(a)) // there is a connection
		_ = a.Unlock()     // if it still holds
		a.Take()
		defer w.Mend()
		w.HoldLast(last, sent)
		e.Spawn(func() { stranded(w) })
		err := do(a) // nil if it was sent again, on another connection
		switch {
		case last > 0 && !w.Held():
			return // it sent less than before
		case !w.Held():
			e.Doubtf("A has sent nothing that could arrive late")
		}
		arrives(e, a, w, op, err, watch)
	})
}

// arrives has A's held requests of op arrive when B has the lock.
func arrives(e *party.Env, a *party.Party, w *fault.Wire, op string, returned error, watch time.Duration) {
	b, c := e.Party("B", a.Name, e.Long), e.Party("C", a.Name, e.Long)
	b.LockBy(e.TTL+party.Slack(e.TTL), "A, whose TTL is %v, could send nothing more", e.TTL)
	token := b.Token()
	w.Release()
	if err := c.LockWithin(watch); err == nil {
		e.Robbed(b, op, returned)
	}
	b.Still("what A sent has arrived")
	b.KeepsToken(token, "after A's late request")
	b.Excludes(a, e.Settle())
	b.Release()
	w.Mend()
	if err := a.Unlock(); err == nil {
		e.Failf("A's Unlock said nil when B had had the lock")
	}
}
