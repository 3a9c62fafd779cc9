package conformance

import (
	"time"

	"github.com/go-locker/locker"
)

func releasedTwice(e *env) {
	a, b, w := e.rwTrio()
	a.share()
	b.share()
	a.release()
	a.want("second Unlock of its share", a.unlock(), locker.ErrNotHeld)
	b.excludes(w, e.settle())
	b.prolong()
	b.release()
	w.promptly("each share was unlocked")
	w.release()
}

func releasedLate(e *env) {
	name := e.name()
	a, b, w := e.rwParty("A", name, e.ttl), e.rwParty("B", name, e.long), e.rwParty("C", name, e.long)
	a.share()
	b.share()
	a.awaitExpiry()
	_ = a.unlock()
	b.excludes(w, e.settle())
	b.prolong()
	b.release()
	w.promptly("B has unlocked, A's share has expired")
	w.release()
}

func expiresAlone(e *env) { e.together(e.expiresBeside, e.expiresAmong) }

// expiresAmong has the share that lasts longer be the first: neither the take nor an Extend of
// another cuts it.
func (e *env) expiresAmong() {
	name := e.name()
	a, b, w := e.rwParty("A", name, e.ttl), e.rwParty("B", name, e.long), e.rwParty("C", name, e.long)
	b.share()
	a.share()
	a.prolong()
	a.awaitExpiry()
	b.excludes(w, e.settle())
	b.prolong()
	b.release()
	w.lockBy(e.prompt, "B has unlocked, A's share has expired")
	w.release()
}

// expiresBeside has the writer wait from the beginning: somebody has to notice that the time of a
// share is over.
func (e *env) expiresBeside() {
	name, ttl := e.name(), e.lifetime(1200*time.Millisecond) // longer than slack
	before := time.Now()
	a, b, w := e.rwParty("A", name, ttl), e.rwParty("B", name, e.long), e.rwParty("C", name, e.long)
	a.share()
	b.share()
	done := w.startLock(e.Context())
	b.prolong()
	b.release()
	w.granted(done, ttl+slack(ttl), "A took a share for %v and was heard of no more, B has unlocked", ttl)
	if held := time.Since(before); held < ttl-drift(ttl) {
		e.doubtf("C got the lock %v after A asked for a share, for %v", held, ttl)
	}
	w.release()
}

func lostShare(e *env) { e.together(e.lostToWriter, e.lostAmong) }

// lostAmong has another reader stay: the lock is shared yet when the share has expired.
func (e *env) lostAmong() {
	name := e.name()
	a, b, w := e.rwParty("A", name, e.ttl), e.rwParty("B", name, e.long), e.rwParty("C", name, e.ttl)
	b.share()
	a.share()
	a.awaitExpiry()
	a.want("Extend of a share that expired, while B has one", a.extend(), locker.ErrLost)
	b.release()
	a.want("Extend of a share that expired, when the lock is free", a.extend(), locker.ErrLost)
	w.promptly("B has unlocked, A's share has expired")
	w.release()
}

func (e *env) lostToWriter() {
	name := e.name()
	a, w := e.rwParty("A", name, e.ttl), e.rwParty("B", name, e.long)
	a.share()
	deadline := a.deadline()
	w.lockBy(e.ttl+e.patience, "A's TTL of %v is over", e.ttl)
	if early := time.Until(deadline); early > 0 {
		e.doubtf("B got the lock %v before the Deadline of A's share", early)
	}
	a.awaitExpiry()
	a.wantNoToken("after the TTL of its share, when B has the lock")
	a.want("Extend of a share that expired", a.extend(), locker.ErrLost)
	a.want("Unlock of a share that expired", a.unlock(), locker.ErrLost)
	w.prolong()
	w.release()
}
