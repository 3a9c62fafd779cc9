package conformance

import (
	"fmt"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/power"
)

var readWriteRows = []row{{
	name:    "readers share the lock",
	promise: "Any number of readers hold a share at the same time.",
	sources: []string{goRWMutex, curator},
	needs:   []need{readsWrites},
	body:    readersShare,
}, {
	name:    "readers keep a writer out until the last of them has gone",
	promise: "Lock waits until each share has ended, and no longer.",
	sources: []string{goRWMutex, redissonShares},
	needs:   []need{readsWrites},
	body:    readersKeepWriterOut,
}, {
	name:    "a writer keeps readers out",
	promise: "No share is granted while a writer holds the lock.",
	sources: []string{goRWMutex},
	needs:   []need{readsWrites},
	body:    writerKeepsReadersOut,
}, {
	name:    "a plain lock of the name and shares exclude each other",
	promise: "A plain lock is a writer: it and the shares of its name exclude each other.",
	sources: []string{contractOfShares},
	needs:   []need{readsWrites},
	body:    plainLockExcludesShares,
}, {
	name:    "shares held at the same time have one token, between those of the writers",
	promise: "Shares held at the same time have one token, above that of the writer before them and below that of the writer after them.",
	sources: []string{contractOfShares, kleppmann},
	needs:   []need{readsWrites},
	body:    phasesShareToken,
}, {
	name:    "a share that is released twice does not end another's",
	promise: "Unlock ends the caller's share, never another's, however often it is called.",
	sources: []string{redissonShares, curator},
	needs:   []need{readsWrites},
	body:    releasedTwice,
}, {
	name:    "Unlock of a share that expired ends no other's",
	promise: "Unlock ends the caller's share, never another's, however late it is called.",
	sources: []string{redissonShares},
	needs:   []need{readsWrites},
	body:    releasedLate,
}, {
	name:    "a share expires after its own TTL though others extend theirs",
	promise: "Each share expires by itself, one TTL after its last Extend, however long the others last.",
	sources: []string{redissonShares},
	needs:   []need{readsWrites},
	body:    expiresAlone,
}, {
	name:    "a share that expired is lost, and its holder knows",
	promise: "A share that nobody extends is lost after its TTL, as every hold is: no Extend revives it.",
	sources: []string{contractOfShares, mostNews},
	needs:   []need{readsWrites},
	body:    lostShare,
}, {
	name:    "a TryLock that fails keeps no reader out",
	promise: "TryLock makes one attempt, and an attempt that failed leaves nothing behind: no reader waits for it.",
	sources: []string{goRWMutex, zkShared},
	needs:   []need{readsWrites},
	body:    failedTryKeepsNobodyOut,
}, {
	name:    "an upgrade is refused at once, and the share stays",
	promise: "If the caller holds a share, Lock and TryLock return an error, and do not wait for this share.",
	sources: []string{goRWMutex, redissonShares},
	needs:   []need{readsWrites},
	body:    upgradeRefused,
}, {
	name:    "a downgrade keeps the hold and its token",
	promise: "Downgrade makes the hold a share: it lasts, is extended and is unlocked as before, and its token stays.",
	sources: []string{contractOfShares},
	needs:   []need{readsWrites},
	body:    downgradeKeepsHold,
}, {
	name:    "a downgrade lets readers in and keeps writers out",
	promise: "Downgrade lets in the readers at the head of the queue, and nobody holds the lock alone until all have gone.",
	sources: []string{contractOfShares, curator},
	needs:   []need{readsWrites},
	body:    downgradeAdmitsReaders,
}, {
	name:    "a downgrade lets no writer in between",
	promise: "Downgrade is one step: nobody holds the lock alone between the hold and the share that it becomes.",
	sources: []string{contractOfShares},
	needs:   []need{readsWrites},
	body:    downgradeAdmitsNoWriter,
}, {
	name:    "a downgrade of a lost hold says ErrLost, and leaves the new hold alone",
	promise: "Downgrade acts on the caller's hold alone, never on another owner's.",
	sources: []string{contractOfShares, redissonShares},
	needs:   []need{readsWrites, expire},
	body:    downgradeOfLost,
}, {
	name:    "a downgrade whose reply was lost can be sent again",
	promise: "After an error of Downgrade other than ErrLost, the hold goes on, shared or exclusive, and a second Downgrade succeeds.",
	sources: []string{contractOfShares, redislockReply},
	needs:   []need{readsWrites, links},
	body:    downgradeAgain,
}, {
	name:      "tokens rise from a writer to a share though the server that lags most takes over",
	promise:   "Tokens rise even if data are lost: the token of a share is larger than the tokens of all writers before it.",
	sources:   []string{contractOfShares, callMe, kleppmann},
	needs:     []need{readsWrites, failsOver, tokens},
	shows:     locker.FencingDurable,
	condition: "failover",
	body:      sharesRiseThrough,
}}

// sharesRiseThrough has the server that takes over know of an earlier share, and not of the writer
// that came between.
func sharesRiseThrough(e *env) {
	a, w, c := e.rwTrio()
	a.share()
	a.release()
	fail := e.failOver()
	w.take()
	last := w.token()
	w.release()
	fail()
	e.using(power.Sharing{Sharer: c.rw}, c.who, c.name, c.ttl).takesAbove(last, "B has unlocked, and a server took over")
}

// manyReaders is how many readers hold shares at the same time.
const manyReaders = 12

func readersShare(e *env) {
	all := e.rwParties(manyReaders)
	last := all[manyReaders-1]
	for i, p := range all[:manyReaders-1] {
		p.shareAfter(fmt.Sprintf("%d others have shares, and nobody wants the lock", i))
	}
	if err := last.tryRLock(); err != nil {
		e.doubtf("%s's TryRLock, beside %d shares: %v", last.who, manyReaders-1, err)
	}
	for _, p := range all {
		p.prolong()
	}
	for _, p := range all {
		p.release()
	}
	last.promptly("each share was unlocked")
	last.release()
}

func failedTryKeepsNobodyOut(e *env) {
	a, b, w := e.rwTrio()
	a.share()
	err := w.try()
	if err == nil {
		a.overlapOf("TryLock", w)
	}
	w.want("TryLock of a lock of which A has a share", err, locker.ErrHeld)
	b.shareAfter("A has a share, and C's TryLock has failed")
	b.release()
	if err := b.tryRLock(); err != nil {
		e.doubtf("B's TryRLock, beside A's share, when C's TryLock has failed: %v", err)
	}
	b.release()
	a.release()
}

func readersKeepWriterOut(e *env) {
	a, b, w := e.rwTrio()
	a.share()
	b.share()
	done := w.startLock(e.Context())
	a.keepsOut(w, "Lock", done)
	a.release()
	b.keepsOut(w, "Lock", done)
	b.release()
	w.granted(done, e.prompt, "the last share was unlocked")
	w.prolong()
	w.release()
}

func writerKeepsReadersOut(e *env) {
	w, a, b := e.rwTrio()
	w.take()
	w.excludesShare(a)
	first, second := a.startShare(e.Context()), b.startShare(e.Context())
	w.keepsOut(a, "RLock", first)
	w.keepsOut(b, "RLock", second)
	w.release()
	a.granted(first, e.prompt, "the writer has unlocked")
	b.granted(second, e.prompt, "the writer has unlocked")
	a.release()
	b.release()
}

func plainLockExcludesShares(e *env) {
	name := e.name()
	plain, a := e.party("the plain lock", name, e.long), e.rwParty("A", name, e.long)
	plain.take()
	plain.excludesShare(a)
	plain.release()
	a.shareAfter("the plain lock was unlocked")
	a.excludes(plain, e.settle())
	a.release()
	plain.promptly("A has unlocked its share")
	plain.release()
}

func phasesShareToken(e *env) {
	all := e.rwParties(manyReaders)
	a, b, w, rest := all[0], all[1], all[2], all[3:]
	w.take()
	before := w.someToken("the writer before")
	w.release()
	a.share()
	phase := a.someToken("A's share")
	if phase <= before {
		e.failf("the token of A's share is %d, that of the writer before it was %d; want a larger one", phase, before)
	}
	for _, p := range append(rest, b) {
		p.share()
		p.same(phase, "A's share, held at the same time, has it")
	}
	for _, p := range append(rest, a) {
		p.release()
	}
	a.share()
	a.same(phase, "B's share, held at the same time, has it")
	a.release()
	b.release()
	b.share()
	if later := b.someToken("B's later share"); later < phase {
		e.failf("the token of B's share is %d, that of the shares before it was %d; want no lower one", later, phase)
	}
	phase = max(phase, b.token())
	b.release()
	w.promptly("each share was unlocked")
	if after := w.someToken("the writer after"); after <= phase {
		w.prolong() // is it lost?
		e.failf("the token of the writer is %d, that of the shares before it was %d; want a larger one", after, phase)
	}
	w.release()
}
