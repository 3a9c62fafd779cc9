package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/stdio"
)

var replyRows = []row{{
	name:    "a take whose reply was lost leaves nothing behind",
	promise: "On any error of Lock the caller holds nothing, and what the attempt left behind is cleaned up, or expires within one TTL.",
	sources: []string{mutexReply, rueidisOverrun, zkContext},
	needs:   []need{links},
	body:    takeUnanswered,
}, {
	name:    "a Lock whose replies are lost for a while is not held up by itself",
	promise: "If the reply to a request was lost, and the request is sent again, it succeeds, or what it took is cleaned up. The Locker never mistakes its own hold for another's.",
	sources: []string{redsyncReply},
	needs:   []need{links},
	body:    takeAnsweredLate,
}, {
	name:    "a Lock whose first reply was lost does not wait for its own TTL to end",
	promise: "If the reply to a request was lost, and the request is sent again, it succeeds, or what it took is cleaned up. Nobody waits for their own hold.",
	sources: []string{ownPrograms, redsyncReply},
	needs:   []need{links},
	body:    takeMeetsItself,
}, {
	name:    "an Unlock whose reply was lost has freed the lock",
	promise: "After any error of Unlock the caller no longer has the hold, and the backend ends it within one TTL.",
	sources: []string{redislockReply},
	needs:   []need{links},
	body:    unlockUnanswered,
}, {
	name:    "a release that is sent again says nil or ErrLost, and frees the lock",
	promise: "If the reply to a release was lost, and the release is sent again, it succeeds. In doubt it may say ErrLost.",
	sources: []string{redislockReply, mutexRetry},
	needs:   []need{links},
	body:    unlockAgain,
}, {
	name:    "a release that is sent again never says nil if the hold had ended",
	promise: "A release that is sent again succeeds if the first one ended the hold. But if the hold had ended before the first one arrived, Unlock says ErrLost, never nil.",
	sources: []string{contract},
	needs:   []need{links, revokes},
	body:    unlockLossAgain,
}, {
	name:    "an Extend whose reply was lost leaves the hold as it was",
	promise: "After an error of Extend other than ErrLost the old deadline stands.",
	sources: []string{contract},
	needs:   []need{links, extends},
	body:    extendUnanswered,
}}

func takeUnanswered(e *env) {
	name, ttl := e.name(), e.lifetime(time.Second)
	a, w := e.linked("A", name, ttl)
	b := e.party("B", name, ttl)
	a.take() // there is a connection
	a.release()
	w.loseReplies()
	a.attempt("no reply arrives")
	b.lockFreed("A gave up, and its TTL is over")
	b.release()
	w.mend()
	a.afterOutage("nobody has the lock")
	a.release()
}

// takeAnsweredLate has A's client, which may send again what was not answered, meet its own first request.
func takeAnsweredLate(e *env) {
	name, ttl := e.name(), e.lifetime(time.Second)
	a, w := e.linked("A", name, ttl)
	a.take()
	a.release()
	w.loseReplies()
	done := a.start(e.Context())
	time.Sleep(e.settle())
	w.mend()
	limit := ttl + slack(ttl) + e.prompt
	select {
	case err := <-done:
		if err != nil {
			if errors.Is(err, locker.ErrHeld) {
				e.failf("A's Lock, whose first reply was lost: %v; nobody else wants the lock", err)
			}
			a.lockFreed("nobody has the lock")
		}
	case <-time.After(limit):
		e.doubtf("A's Lock, whose first reply was lost, has not returned after %v, with a TTL of %v, though nobody else wants the lock", limit, ttl)
	}
	a.still("it has just been locked")
	a.release()
}

// takeMeetsItself has a TTL by far longer than anything takes but to wait for its end.
func takeMeetsItself(e *env) {
	ttl := e.long + e.ttl
	a, w := e.linked("A", e.name(), ttl)
	a.take()
	a.release()
	w.loseReplies()
	start := time.Now()
	done := a.start(e.Context())
	time.Sleep(e.settle())
	w.mend()
	select {
	case err := <-done:
		if err != nil {
			a.lockBy(e.prompt, "A's Lock, whose first reply was lost, failed, and nobody has the lock")
		}
	case <-time.After(e.settle() + 2*e.prompt):
		e.doubtf("A's Lock, whose first reply was lost, has not returned after %v, with a TTL of %v, though nobody else wants the lock", time.Since(start), ttl)
	}
	a.drop()
}

func unlockUnanswered(e *env) {
	name, ttl := e.name(), e.lifetime(time.Second)
	a, w := e.linked("A", name, ttl)
	b := e.party("B", name, ttl)
	a.take()
	w.loseReplies()
	start := time.Now()
	err := a.unlock()
	if took := time.Since(start); took > ttl+pause {
		e.doubtf("A's Unlock, whose reply was lost, took %v, with a TTL of %v", took, ttl)
	}
	if err == nil {
		e.failf("A's Unlock said nil though no reply had arrived")
	}
	a.wantNoToken("after Unlock, which returned " + says(err))
	b.lockFreed("A has unlocked")
	b.release()
	w.mend()
	a.afterOutage("nobody has the lock")
	a.release()
}

// unlockAgain mends the link while A unlocks.
func unlockAgain(e *env) {
	a, w := e.linked("A", e.name(), e.long)
	b := e.party("B", a.name, e.long)
	a.take()
	left := e.beside(a.name)
	w.loseReplies()
	stop := time.AfterFunc(settle, w.mend)
	defer stop.Stop()
	err := a.unlock()
	if errors.Is(err, locker.ErrNotHeld) {
		e.failf("A's Unlock of its hold, whose first reply was lost: %v", err)
	}
	left(b)
	if err == nil {
		b.promptly("A's Unlock said nil")
	} else {
		b.lockFreed("A has unlocked")
	}
	b.release()
	a.want("second Unlock", a.unlock(), locker.ErrNotHeld)
}

// unlockLossAgain has A's first release be lost on its way, and another holds when the second arrives.
func unlockLossAgain(e *env) {
	a, w := e.linked("A", e.name(), e.long)
	b := e.party("B", a.name, e.long)
	a.take()
	e.revoke(a.name)
	b.promptly("A's hold was ended at the server")
	w.holdRequests()
	stop := time.AfterFunc(settle, w.mend) // what was sent is lost
	defer stop.Stop()
	switch err := a.unlock(); {
	case err == nil:
		e.failf("A's hold was ended at the server, and B has the lock; A's Unlock, whose first request was lost, said nil")
	case errors.Is(err, locker.ErrNotHeld):
		e.failf("A's Unlock of a hold that was ended at the server: %v; want ErrLost", err)
	}
	b.still("A has unlocked what it lost")
	b.release()
}

func extendUnanswered(e *env) {
	name, ttl := e.name(), e.lifetime(2*time.Second)
	a, w := e.linked("A", name, ttl)
	a.take()
	token, deadline := a.token(), a.deadline()
	w.loseReplies()
	ctx, cancel := context.WithTimeout(e.Context(), settle)
	defer cancel()
	start := time.Now()
	err := a.call("Extend", e.patience+ttl, func() error { return a.l.Extend(ctx) })
	switch took := time.Since(start); {
	case err == nil:
		e.failf("A's Extend said nil though no reply had arrived")
	case took > ttl/2 && !cancels.met(e.h):
		e.skip(fmt.Sprintf("an extend with a limit_ms of %d took %v, with a TTL of %v: it may, and what it leaves is over", stdio.Milliseconds(settle), took, ttl))
	case errors.Is(err, locker.ErrLost), took > ttl/2:
		e.doubtf("A's Extend, whose reply was lost: %v, after %v, with a TTL of %v; its ctx ended after %v", err, took, ttl, settle)
	}
	switch now := a.deadline(); {
	case now.Before(deadline):
		e.failf("A's Extend failed, and its Deadline is %v earlier", deadline.Sub(now))
	case now.After(deadline): // what was answered before may have been on its way
		e.doubtf("A's Extend failed, and its Deadline is %v later", now.Sub(deadline))
	}
	if now := a.token(); now != token {
		e.doubtf("A's token was %d, and after an Extend that failed it is %d", token, now)
	}
	w.mend()
	for end := time.Now().Add(ttl / 4); ; time.Sleep(settle / 10) {
		if err = a.extend(); err == nil || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		e.doubtf("A's Extend, when its link is mended: %v", err)
	}
	a.release()
}

// attempt calls Lock and ends its ctx after a while, which is bound to fail it.
func (p *party) attempt(what string) {
	ctx, cancel := context.WithCancelCause(p.env.Context())
	defer cancel(nil)
	stop := time.AfterFunc(settle, func() { cancel(errStop) })
	defer stop.Stop()
	start := time.Now()
	err := p.lock(ctx)
	switch {
	case err == nil:
		p.env.failf("%s's Lock succeeded, though %s", p.who, what)
	case errors.Is(err, locker.ErrHeld):
		p.env.failf("%s's Lock, when nobody had the lock and %s: %v; want no ErrHeld", p.who, what, err)
	case time.Since(start) > settle+p.env.prompt:
		p.env.doubtf("%s's Lock took %v though its ctx ended after %v", p.who, time.Since(start), settle)
	}
	if token := p.token(); token != 0 {
		p.env.failf("%s's token after a Lock that failed is %d; want 0", p.who, token)
	}
}
