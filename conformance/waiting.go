package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker"
)

var waitingRows = []row{{
	name:    "the lock passes from holder to holder",
	promise: "Unlock ends the caller's hold, and the lock is free for the next one.",
	sources: []string{goLocker},
	body:    passesOn,
}, {
	name:    "a waiter wakes when the holder unlocks",
	promise: "A waiter gets the lock when the holder unlocks, not only when the TTL of that hold has passed.",
	sources: []string{goLocker},
	body:    wakesOnUnlock,
}, {
	name:    "a waiter wakes when the holder unlocks, also long after it waited before",
	promise: "A waiter gets the lock when the holder unlocks, however long ago its client last waited: what expires meanwhile, such as a token by which a server knows its user, is renewed.",
	sources: []string{longPauses},
	body:    wakesAfterPause,
}, {
	name:    "waiters miss none of many unlocks",
	promise: "A waiter gets the lock when the holder unlocks, not only when the TTL of that hold has passed.",
	sources: []string{goLocker},
	chance:  true,
	body:    missesNoUnlock,
}, {
	name:    "a waiter wakes when the holder has crashed",
	promise: "A hold that nobody extends or unlocks expires after one TTL, and a waiter gets the lock.",
	sources: []string{redisDocs},
	needs:   []need{expire},
	body:    wakesOnCrash,
}, {
	name:    "everyone who waits is served",
	promise: "Lock waits until the lock is held: nobody who waits is forgotten, and however many wait, one at a time gets it.",
	sources: []string{goLocker},
	body:    everyoneServed,
}, {
	name:    "everyone who waits on one Locker is served",
	promise: "A Locker may be used by several goroutines: nobody who waits is forgotten.",
	sources: []string{goLocker},
	body: func(e *env) {
		a := e.party("A", e.name(), e.long)
		e.serve(a, sharers(a))
	},
}, {
	name:     "waiters are served in the order in which they came",
	promise:  "Waiters are served first come, first served.",
	sources:  []string{zkRecipe},
	shows:    locker.Ordered,
	optional: true,
	body:     inOrder,
}, {
	name:     "a waiter has the lock within a few round trips of the Unlock",
	promise:  "Waiters are woken by the backend; they need not poll.",
	sources:  []string{zkRecipe},
	shows:    locker.Woken,
	optional: true,
	body:     woken,
}, {
	name:     "a waiter sends next to nothing while nothing happens",
	promise:  "Waiters are woken by the backend; they need not poll.",
	sources:  []string{zkRecipe},
	needs:    []need{links},
	shows:    locker.Woken,
	optional: true,
	body:     waitsQuietly,
}}

func passesOn(e *env) {
	a, b := e.rivals(e.long, e.long)
	for range 3 {
		for _, p := range []*party{a, b} {
			p.promptly("the other has unlocked")
			p.release()
		}
	}
}

func wakesOnUnlock(e *env) {
	a, b := e.rivals(e.long, e.long)
	e.wakes(a, b)
}

// longPause is longer than what expires with servers that are set up for this: a second.
const longPause = 3 * time.Second

func wakesAfterPause(e *env) {
	a, b := e.rivals(e.long, e.long)
	e.wakes(a, b)
	time.Sleep(longPause)
	e.wakes(a, b)
}

// wakes has b wait while a holds, and get the lock when a unlocks.
func (e *env) wakes(a, b *party) {
	a.take()
	done := b.start(e.Context())
	select {
	case err := <-done:
		e.early(a, b, err)
	case <-time.After(3 * e.settle()): // it waits
	}
	a.release()
	b.granted(done, e.prompt, "A has unlocked; the TTL is %v", e.long)
	b.release()
}

// missesNoUnlock has pairs of processes, each of a name of its own, take turns: many unlocks in little time.
func missesNoUnlock(e *env) {
	var wg sync.WaitGroup
	for range contenders / 2 {
		a, b := e.rivals(e.long, e.long)
		a.take()
		wg.Go(func() { e.takeTurns(a, b) })
	}
	wg.Wait()
}

// takeTurns has the holder unlock when the waiter should be waiting, and then the other way round.
func (e *env) takeTurns(holder, waiter *party) {
	const rounds = 300
	end := time.Now().Add(contentionTime)
	for i := 1; i <= rounds && time.Now().Before(end); i++ {
		done := waiter.start(e.Context())
		time.Sleep(rand.N(2 * time.Millisecond)) // now and then the Unlock comes first, or just then
		holder.drop()
		waiter.granted(done, e.prompt, "Unlock %d has returned", i)
		holder, waiter = waiter, holder
	}
	holder.drop()
}

func wakesOnCrash(e *env) {
	name, ttl := e.name(), e.lifetime(1200*time.Millisecond) // longer than slack
	a, b := e.party("A", name, ttl), e.party("B", name, ttl)
	a.take()
	b.lockBy(ttl+slack(ttl), "A took the lock for %v and was heard of no more", ttl)
	b.release()
}

func everyoneServed(e *env) {
	a := e.party("A", e.name(), e.long)
	waiters := e.multitude(a.name)
	a.take() // so that it is known how long that takes
	a.release()
	if time.Duration(e.pace.answer.Load()) > settle/2 {
		waiters = waiters[:contenders]
	}
	e.serve(a, waiters)
}

// serve has each of the waiters lock once while a holds, and checks that each holds alone. In which
// order is not asked for.
func (e *env) serve(a *party, waiters []*party) {
	a.take()
	first := interval{who: a.who, from: time.Now()}
	served := e.queue(waiters)
	time.Sleep(e.settle())
	first.to = time.Now()
	a.release()
	e.disjoint(append(served(), first))
}

// queue has each of the waiters lock once. served returns their holds, when all have unlocked.
func (e *env) queue(waiters []*party) (served func() []interval) {
	ctx, cancel := context.WithTimeout(e.Context(), e.long+e.patience)
	c := &contest{env: e, ctx: ctx, work: func() { time.Sleep(5 * time.Millisecond) }}
	errs := make(chan error, len(waiters))
	for _, p := range waiters {
		e.spawn(func() {
			err := p.lock(ctx)
			if err == nil {
				c.hold(p) // ends the trial if it fails
			} else {
				err = fmt.Errorf("%s: %w", p.who, err)
			}
			errs <- err
		})
	}
	return func() []interval {
		defer cancel()
		for i := range waiters {
			if err := <-errs; err != nil {
				e.doubtf("%d of %d waiters were served, then %v", i, len(waiters), err)
			}
		}
		return c.intervals
	}
}

func inOrder(e *env) {
	name := e.name()
	a, waiters := e.party("A", name, e.long), e.processes(name)
	a.take()
	served := make(chan int, len(waiters))
	for i, p := range waiters {
		done := p.start(e.Context())
		e.spawn(func() {
			if <-done == nil {
				served <- i
				_ = p.unlock()
			}
		})
		time.Sleep(e.settle()) // it stands in the queue
	}
	a.release()
	for i := range waiters {
		select {
		case next := <-served:
			if next != i {
				e.doubtf("%s, who came as number %d, was served as number %d", waiters[next].who, next+1, i+1)
			}
		case <-time.After(e.long):
			e.doubtf("%d of %d waiters were served within %v", i, len(waiters), e.long)
		}
	}
}

// woken compares what passes between Unlock and the next holder's Lock with what a pair of calls takes.
func woken(e *env) {
	const rounds = 9
	a, b := e.rivals(e.long, e.long)
	var pairs, waits []time.Duration
	for range rounds {
		start := time.Now()
		a.take()
		a.release()
		pairs = append(pairs, time.Since(start))
	}
	for range rounds {
		a.take()
		done := b.start(e.Context())
		time.Sleep(e.settle() + rand.N(e.settle())) // not in step with one that polls
		a.release()
		start := time.Now()
		if err := <-done; err != nil {
			e.doubtf("B's Lock: %v", err)
		}
		waits = append(waits, time.Since(start))
		b.release()
	}
	pair, wait := median(pairs), median(waits)
	if limit := 10*pair + 20*time.Millisecond; wait > limit {
		e.doubtf("a waiter has the lock %v after Unlock, when Lock and Unlock of a free lock take %v", wait, pair)
	}
}

// waitsQuietly counts the requests of a waiter. It may keep a session alive, and look now and then whether it was forgotten: this
// module's send two at most. One that polls every 100 ms sends twenty.
func waitsQuietly(e *env) {
	const watched, limit = 2 * time.Second, 8
	name := e.name()
	a := e.party("A", name, e.long)
	b, w := e.linked("B", name, e.long)
	a.take()
	done := b.start(e.Context())
	time.Sleep(3 * e.settle()) // it waits
	before := w.requests()
	select {
	case err := <-done:
		e.early(a, b, err)
	case <-time.After(watched):
	}
	sent := w.requests() - before
	a.drop()
	if err := <-done; err != nil {
		e.doubtf("B's Lock: %v", err)
	}
	b.release()
	if most := limit * max(1, len(w.addresses())); sent > most {
		e.doubtf("B, who waits, has sent %d requests in %v in which nothing happened; want at most %d", sent, watched, most)
	}
}

func median(d []time.Duration) time.Duration { return slices.Sorted(slices.Values(d))[len(d)/2] }
