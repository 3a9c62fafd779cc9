package conformance

import (
	"context"
	"errors"
	"time"

	"github.com/go-locker/locker"
)

var lateRows = []row{{
	name:    "a take that arrives late leaves nothing behind",
	promise: "If a request arrives after clean-up, and takes the lock, this hold expires within one TTL.",
	sources: []string{redsyncStopped, kleppmann},
	needs:   []need{links},
	body:    takeArrivesLate,
}, {
	name:    "a take that arrives more than a TTL late takes nothing",
	promise: "The time of a hold counts from when its request was sent. So a request that arrives more than a TTL late takes nothing.",
	sources: []string{kleppmann},
	needs:   []need{links},
	body:    takeArrivesTooLate,
}, {
	name:    "a take that breaks off between its requests leaves nothing behind for longer than its TTL",
	promise: "Taking the lock and setting its TTL are one step: at whatever moment the client dies, the lock is free one TTL later.",
	sources: []string{redisDocs, ownPrograms},
	needs:   []need{links, expire},
	body:    takeBreaksOff,
}, {
	name:    "an Unlock that arrives late leaves the new hold alone",
	promise: "Unlock ends the caller's hold, never another owner's, whenever it arrives.",
	sources: []string{redisDocs, mutexRetry},
	needs:   []need{links},
	shows:   locker.Exclusive,
	body:    unlockArrivesLate,
}, {
	name:    "an Unlock that arrives late leaves the next hold of the same Locker alone",
	promise: "Unlock ends the hold that it was called for, and no later one.",
	sources: []string{mutexRetry},
	needs:   []need{links},
	shows:   locker.Exclusive,
	body:    unlockArrivesInNext,
}, {
	name:    "an Extend that arrives late leaves the new hold alone, and revives nothing",
	promise: "Extend acts on the caller's hold alone, whenever it arrives.",
	sources: []string{kleppmann},
	needs:   []need{links, extends},
	shows:   locker.Exclusive,
	body:    extendArrivesLate,
}}

// sends returns how many requests a step takes of what a party with a network of its own does twice: the first time there are
// connections to be made.
func (e *env) sends(ttl time.Duration, step int, all ...func(*party)) (sent int) {
	a, w := e.linked("A", e.name(), ttl)
	for range 2 {
		for i, do := range all {
			before := w.requests()
			do(a)
			if i == step {
				sent = w.requests() - before
			}
		}
	}
	return sent
}

// lastFew is how many requests of an operation, at its end, may be kept back alone. Sessions that are kept alive make a count too
// large, by one or so.
const lastFew = 3

// eachLast has a story told with all requests of an operation kept back: 0; and, where it sends several, with the last one alone,
// the last two, and so on. The stories go on side by side.
func (e *env) eachLast(sent int, story func(e *env, last int)) {
	var stories []func()
	for last := range max(1, min(sent, lastFew+1)) {
		stories = append(stories, func() { story(e.story(), last) })
	}
	e.together(stories...)
}

// holdLast keeps back the last requests of an operation that sends so many, or all: 0; and what follows.
func (w *wire) holdLast(last, sent int) {
	if last == 0 {
		w.holdRequests()
		return
	}
	w.passFirst(sent - last)
}

// lateTake has A give up a Lock whose last requests, or all, were kept back. The clean-up gets through, on new connections. It returns
// nil if nothing is left to arrive.
func (e *env) lateTake(name string, ttl time.Duration, last, sent int) *wire {
	a, w := e.linked("A", name, ttl)
	b := e.party("B", name, ttl)
	a.take() // there is a connection
	a.release()
	w.holdLast(last, sent)
	switch err := a.lockUntil(w.stranded); {
	case errors.Is(err, locker.ErrHeld):
		e.failf("A's Lock, when nobody had the lock and a request did not arrive: %v; want no ErrHeld", err)
	case last > 0 && (err == nil || !w.held()): // what was kept back was not needed, or there was nothing
		return nil
	case err == nil:
		e.doubtf("A's Lock succeeded, though no request arrived")
	case !w.held():
		e.doubtf("A's Lock has sent nothing that could arrive late")
	}
	w.abandon()
	if last == 0 {
		b.promptly("A gave up, and its request never arrived")
	} else {
		b.lockFreed("A gave up, and its last request never arrived")
	}
	b.release()
	time.Sleep(e.settle()) // clean-up is through
	return w
}

// lockUntil is Lock whose ctx ends when until returns.
func (p *party) lockUntil(until func()) error {
	ctx, cancel := context.WithCancelCause(p.env.Context())
	defer cancel(nil)
	p.env.spawn(func() {
		until()
		cancel(errStop)
	})
	return p.lock(ctx)
}

// stranded waits until something is kept back. What follows on the same connection is lost then, and new connections pass.
func (w *wire) stranded() {
	for end := time.Now().Add(w.env.prompt); !w.held() && time.Now().Before(end) && w.env.Context().Err() == nil; {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(settle / 2) // all of it is
	w.seal()
	w.passNew()
}

func takeArrivesLate(e *env) {
	ttl := e.lifetime(time.Second)
	sent := e.sends(ttl, 0, (*party).take, (*party).release)
	e.eachLast(sent, func(e *env, last int) {
		name := e.name()
		w := e.lateTake(name, ttl, last, sent)
		if w == nil {
			return
		}
		defer w.mend()
		c := e.party("C", name, ttl)
		w.release()
		time.Sleep(e.settle())
		c.lockFreed("A's late request can be held for no more than its TTL")
		c.still("it has the lock")
		c.release()
	})
}

func takeArrivesTooLate(e *env) {
	ttl := e.lifetime(time.Second)
	sent := e.sends(ttl, 0, (*party).take, (*party).release)
	e.eachLast(sent, func(e *env, last int) {
		name := e.name()
		start := time.Now()
		w := e.lateTake(name, ttl, last, sent)
		if w == nil {
			return
		}
		defer w.mend()
		c := e.party("C", name, ttl)
		time.Sleep(ttl + slack(ttl))
		w.release()
		time.Sleep(e.settle())
		if err := c.lockWithin(ttl / 2); err != nil {
			e.doubtf("A gave up its Lock, with a TTL of %v; a request of it arrived up to %v late, and then C's Lock of a free lock: %v",
				ttl, time.Since(start), err)
		}
		c.release()
	})
}

// takeBreaksOff has nothing more get through, on any connection, after each of the requests of a
// take.
func takeBreaksOff(e *env) {
	ttl := e.lifetime(time.Second)
	sent := e.sends(ttl, 0, (*party).take, (*party).release)
	var stories []func()
	for passed := 1; passed < sent && passed <= lastFew+1; passed++ {
		stories = append(stories, func() {
			e, name := e.story(), e.name()
			a, w := e.linked("A", name, ttl)
			a.take() // there is a connection
			a.release()
			defer w.mend()
			w.holdLast(sent-passed, sent)
			ctx, cancel := context.WithCancel(e.Context())
			defer cancel()
			done := a.start(ctx)
			for end := time.Now().Add(e.prompt); !w.held() && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			if !w.held() {
				return // it sends less than before
			}
			b := e.party("B", name, ttl)
			b.lockBy(ttl+slack(ttl), "%d of about %d requests of A's Lock have arrived, with a TTL of %v, and nothing of A's since", passed, sent, ttl)
			cancel()
			if err := <-done; err != nil {
				b.release()
				return
			}
			// Those that arrived were enough, as they are to a majority: it has been A's, for as
			// long as it was nobody else's.
			if shows := a.believes(); shows != "" {
				e.failf("A's Lock succeeded, %d of about %d requests of it have arrived, B has the lock, and A has %s", passed, sent, shows)
			}
			b.release()
		})
	}
	e.together(stories...)
}

// late has A do something, which takes so many requests, the last of which, or all, arrive when B has the lock. A third one tries to
// get the lock for as long as watch.
func (e *env) late(op string, do func(*party) error, sent int, watch time.Duration) {
	e.eachLast(sent, func(e *env, last int) {
		a, w := e.linked("A", e.name(), e.ttl)
		a.take()
		a.sound(op, do(a)) // there is a connection
		_ = a.unlock()     // if it holds yet
		a.take()
		defer w.mend()
		w.holdLast(last, sent)
		e.spawn(w.stranded)
		err := do(a) // nil if it was sent again, on another connection
		switch {
		case last > 0 && !w.held():
			return // it sent less than before
		case !w.held():
			e.doubtf("A has sent nothing that could arrive late")
		}
		e.arrives(a, w, op, err, watch)
	})
}

// arrives has what A sent for op arrive when B has the lock.
func (e *env) arrives(a *party, w *wire, op string, returned error, watch time.Duration) {
	b, c := e.party("B", a.name, e.long), e.party("C", a.name, e.long)
	b.lockBy(e.ttl+slack(e.ttl), "A, whose TTL is %v, could send nothing more", e.ttl)
	token := b.token()
	w.release()
	if err := c.lockWithin(watch); err == nil {
		e.robbed(b, op, returned)
	}
	b.still("what A sent has arrived")
	if now := b.token(); now != token {
		e.failf("B's token was %d, and after A's late request it is %d", token, now)
	}
	b.excludes(a, e.settle())
	b.release()
	w.mend()
	if err := a.unlock(); err == nil {
		e.failf("A's Unlock said nil when B had had the lock")
	}
}

func unlockArrivesLate(e *env) {
	e.late("Unlock", (*party).unlock, e.sends(e.ttl, 1, (*party).take, (*party).release), e.settle())
}

func extendArrivesLate(e *env) {
	sent := e.sends(e.ttl, 1, (*party).take, (*party).prolong, (*party).release)
	e.together(
		func() { e.late("Extend", (*party).extend, sent, 2*e.ttl) }, // b's hold must not have a's TTL
		func() { extendFindsNobody(e) },
	)
}

// extendFindsNobody has an Extend arrive when its hold is over, and nobody has taken the lock. What A sends afterwards on new
// connections is not held up: it may take the request back.
func extendFindsNobody(e *env) {
	e = e.story()
	ttl := e.lifetime(2 * time.Second)
	a, w := e.linked("A", e.name(), ttl)
	b := e.party("B", a.name, ttl)
	a.take()
	a.prolong() // there is a connection
	defer w.mend()
	w.holdRequests()
	e.spawn(w.stranded)
	_ = a.extend() // nil if it was sent again
	time.Sleep(ttl + slack(ttl))
	if !w.held() {
		e.doubtf("A has sent nothing that could arrive late")
	}
	w.release()
	time.Sleep(5 * e.settle()) // a server may take a while
	b.lockBy(ttl/2, "A's hold was over, its late Extend has arrived, the lock is free")
	b.release()
}

func unlockArrivesInNext(e *env) {
	sent := e.sends(e.ttl, 1, (*party).take, (*party).release)
	e.eachLast(sent, func(e *env, last int) {
		a, w := e.linked("A", e.name(), e.ttl)
		a.take()
		a.release() // there is a connection
		a.take()
		w.holdLast(last, sent)
		switch err := a.unlock(); {
		case last > 0 && !w.held():
			return
		case err == nil && last == 0:
			e.failf("A's Unlock said nil though no request arrived")
		}
		w.passNew()
		w.abandon()
		if err := a.lockWithin(e.ttl + slack(e.ttl)); err != nil {
			return // it is not done with what it has sent
		}
		token := a.token()
		w.release()
		time.Sleep(e.settle())
		a.still("the late Unlock of its hold before has arrived")
		if now := a.token(); now != token {
			e.failf("A's token was %d, and after the late Unlock of its hold before it is %d", token, now)
		}
		a.release()
	})
}
