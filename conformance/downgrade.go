package conformance

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-locker/locker"
)

func downgradeKeepsHold(e *env) { e.together(e.downgradeKeepsToken, e.downgradeKeepsTTL) }

func (e *env) downgradeKeepsToken() {
	a, b, w := e.rwTrio()
	a.mayDowngrade()
	a.take()
	token := a.someToken("A's hold")
	a.weaken()
	a.same(token, "the hold had it before its Downgrade")
	a.prolong()
	b.shareAfter("A has made its hold a share")
	b.same(token, "A's share, which was the lock before, has it")
	b.release()
	a.excludes(w, e.settle())
	a.prolong()
	a.release()
	w.promptly("A has unlocked")
	if after := w.someToken("the writer after"); after <= token {
		w.prolong() // is it lost?
		e.failf("the token of the writer is %d, that of the shares before it was %d; want a larger one", after, token)
	}
	w.release()
}

// downgradeKeepsTTL has the holder crash after its Downgrade.
func (e *env) downgradeKeepsTTL() {
	name, ttl := e.name(), e.lifetime(1200*time.Millisecond) // longer than slack
	a, w := e.rwParty("A", name, ttl), e.party("C", name, e.long)
	a.mayDowngrade()
	before := time.Now()
	a.take()
	a.weaken()
	w.lockBy(ttl+slack(ttl), "A, whose TTL is %v, has made its hold a share and was heard of no more", ttl)
	if held := time.Since(before); held < ttl-drift(ttl) {
		e.doubtf("C got the lock %v after A asked for it, for %v, and made it a share", held, ttl)
	}
	w.release()
}

// downgradeAdmitsReaders has a writer in the queue behind the readers, where there is one: where
// there is none a writer may go first.
func downgradeAdmitsReaders(e *env) {
	all := e.rwParties(4)
	a, b, c, w := all[0], all[1], all[2], all[3]
	a.mayDowngrade()
	a.take()
	first, second := b.startShare(e.Context()), c.startShare(e.Context())
	var writer <-chan error
	if e.ordered() {
		writer = w.startLock(e.Context())
	}
	a.weaken()
	b.granted(first, e.prompt, "A has made its hold a share")
	c.granted(second, e.prompt, "A has made its hold a share")
	if writer == nil {
		writer = w.startLock(e.Context())
	}
	a.keepsOut(w, "Lock", writer)
	a.release()
	b.release()
	c.keepsOut(w, "Lock", writer)
	c.release()
	w.granted(writer, e.prompt, "each share was unlocked")
	w.release()
}

func downgradeAdmitsNoWriter(e *env) { e.together(e.downgradeKeepsWriterOut, e.downgradesOften) }

// downgradesOften has a writer want the lock again and again, so that it finds the shortest gap.
func (e *env) downgradesOften() {
	e = e.story()
	a, _, w := e.rwTrio()
	a.mayDowngrade()
	ctx, cancel := context.WithTimeout(e.Context(), contentionTime/2)
	defer cancel()
	c := &contest{env: e, ctx: ctx, work: linger}
	done := make(chan struct{})
	e.spawn(func() {
		defer close(done)
		for ctx.Err() == nil {
			if w.lock(ctx) == nil {
				c.hold(w)
			}
		}
	})
	var held []interval
	for ctx.Err() == nil {
		a.take()
		t := interval{who: a.who, from: time.Now()}
		a.weaken()
		if t.to = time.Now(); a.until().Before(t.to) {
			t.to = a.until()
		}
		held = append(held, t)
		a.drop()
	}
	<-done
	e.disjoint(append(held, c.intervals...))
}

func (e *env) downgradeKeepsWriterOut() {
	a, b, w := e.rwTrio()
	a.mayDowngrade()
	a.take()
	writer := w.startLock(e.Context())
	var reader <-chan error
	if e.ordered() {
		reader = b.startShare(e.Context())
	}
	a.weaken()
	a.keepsOut(w, "Lock", writer)
	if reader != nil {
		b.queued(reader, "C, who waits for A")
	}
	a.prolong()
	a.release()
	w.granted(writer, e.prompt, "A has unlocked")
	w.release()
	if reader != nil {
		b.granted(reader, e.prompt, "C has unlocked")
		b.release()
	}
}

func downgradeOfLost(e *env) {
	name := e.name()
	a, b, c := e.rwParty("A", name, e.ttl), e.rwParty("B", name, e.long), e.rwParty("C", name, e.long)
	a.mayDowngrade()
	a.takeOver(b)
	err := a.downgrade()
	if errors.Is(err, locker.ErrUnsupported) {
		e.skip(fmt.Sprintf("the RWLocker does not downgrade: %v", err))
	}
	b.excludesShare(c)
	a.want("Downgrade after B took the lock", err, locker.ErrLost)
	_ = a.unlock()
	a.want("Downgrade after Unlock", a.downgrade(), locker.ErrNotHeld)
	b.excludesShare(c)
	b.prolong()
	b.release()
}

// downgradeAgain mends the link while A downgrades.
func downgradeAgain(e *env) {
	a, w := e.linked("A", e.name(), e.long)
	if _, ok := a.l.(RWLocker); !ok {
		e.skip("what Faults.Through returns is no RWLocker")
	}
	b, c := e.rwParty("B", a.name, e.long), e.rwParty("C", a.name, e.long)
	a.mayDowngrade()
	a.take()
	token := a.someToken("A's hold")
	w.loseReplies()
	stop := time.AfterFunc(settle, w.mend)
	defer stop.Stop()
	err := a.downgrade()
	for end := time.Now().Add(e.prompt); err != nil && time.Now().Before(end); time.Sleep(settle / 10) {
		if errors.Is(err, locker.ErrLost) || errors.Is(err, locker.ErrUnsupported) {
			break
		}
		err = a.downgrade()
	}
	a.downgraded(err)
	b.shareAfter("A has made its hold a share")
	b.same(token, "A's share, which was the lock before, has it")
	a.same(token, "the hold had it before its Downgrade")
	b.release()
	a.prolong()
	a.excludes(c, e.settle())
	a.release()
	c.promptly("A has unlocked")
	c.release()
}

func upgradeRefused(e *env) {
	a, b, w := e.rwTrio()
	a.share()
	token := a.token()
	start := time.Now()
	err := a.lockWithin(2 * e.prompt)
	if took := time.Since(start); err == nil || took > e.prompt {
		e.doubtf("the Lock of A, whose own hold is a share, returned after %v: %s; want an error at once", took, says(err))
	}
	if err := a.tryLock(e.Context()); err == nil {
		e.doubtf("the TryLock of A, whose own hold is a share, succeeded")
	}
	a.prolong()
	a.same(token, "a Lock that was refused changes nothing")
	b.shareAfter("A's Lock was refused")
	a.excludes(w, e.settle())
	a.release()
	b.excludes(w, e.settle())
	b.release()
	w.promptly("each share was unlocked")
	w.release()
}
