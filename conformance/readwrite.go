package conformance

import "time"

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
	promise: "No share is granted while somebody holds the lock alone.",
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
	name:    "a share that is released twice ends no other's",
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
	promise: "Each share expires by itself, one TTL after its last Extend.",
	sources: []string{redissonShares},
	needs:   []need{readsWrites},
	body:    expiresAlone,
}, {
	name:    "a share that expired is lost, and its holder knows",
	promise: "A share that nobody extends is lost after its TTL, as every hold is.",
	sources: []string{contractOfShares, mostNews},
	needs:   []need{readsWrites},
	body:    lostShare,
}, {
	name:    "an upgrade is refused at once, and the share stays",
	promise: "Lock and TryLock by one whose own hold is a share return an error, and do not wait for themselves.",
	sources: []string{goRWMutex, redissonShares},
	needs:   []need{readsWrites},
	body:    upgradeRefused,
}, {
	name:    "a downgrade keeps the hold and its token",
	promise: "Downgrade makes the hold a share: it is extended and unlocked as before, and its token stays.",
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
}}

func readersShare(e *env) {
	a, b, c := e.rwTrio()
	a.share()
	b.shareAfter("A has a share, and nobody else wants the lock")
	if err := c.tryRLock(); err != nil {
		e.doubtf("C's TryRLock, beside shares of A and B: %v", err)
	}
	for _, p := range []*rwParty{a, b, c} {
		p.prolong()
	}
	for _, p := range []*rwParty{b, a, c} {
		p.release()
	}
	b.promptly("each share was unlocked")
	b.release()
}

func readersKeepWriterOut(e *env) {
	a, b, w := e.rwTrio()
	a.share()
	b.share()
	done := w.startLock(e.ctx)
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
	first, second := a.startShare(e.ctx), b.startShare(e.ctx)
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
	(&rwParty{party: plain}).excludesShare(a)
	plain.release()
	a.shareAfter("the plain lock was unlocked")
	a.excludes(plain, settle)
	a.release()
	plain.promptly("A has unlocked its share")
	plain.release()
}

func phasesShareToken(e *env) {
	a, b, w := e.rwTrio()
	w.take()
	before := w.someToken("the writer before")
	w.release()
	a.share()
	phase := a.someToken("A's share")
	if phase <= before {
		e.failf("the token of A's share is %d, that of the writer before it was %d; want a larger one", phase, before)
	}
	b.share()
	b.same(phase, "A's share, held at the same time, has it")
	a.release()
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

func upgradeRefused(e *env) {
	a, b, w := e.rwTrio()
	a.share()
	token := a.token()
	start := time.Now()
	err := a.lockWithin(2 * e.prompt)
	if took := time.Since(start); err == nil || took > e.prompt {
		e.doubtf("the Lock of A, whose own hold is a share, returned after %v: %s; want an error at once", took, says(err))
	}
	if err := a.tryLock(e.ctx); err == nil {
		e.doubtf("the TryLock of A, whose own hold is a share, succeeded")
	}
	a.prolong()
	a.same(token, "a Lock that was refused changes nothing")
	b.shareAfter("A's Lock was refused")
	a.excludes(w.party, settle)
	a.release()
	b.excludes(w.party, settle)
	b.release()
	w.promptly("each share was unlocked")
	w.release()
}

func downgradeKeepsHold(e *env) {
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
	a.excludes(w.party, settle)
	a.prolong()
	a.release()
	w.promptly("A has unlocked")
	if after := w.someToken("the writer after"); after <= token {
		w.prolong() // is it lost?
		e.failf("the token of the writer is %d, that of the shares before it was %d; want a larger one", after, token)
	}
	w.release()
}

func downgradeAdmitsReaders(e *env) {
	all := e.rwParties(4)
	a, b, c, w := all[0], all[1], all[2], all[3]
	a.mayDowngrade()
	a.take()
	first, second := b.startShare(e.ctx), c.startShare(e.ctx)
	writer := w.startLock(e.ctx)
	a.weaken()
	b.granted(first, e.prompt, "A has made its hold a share")
	c.granted(second, e.prompt, "A has made its hold a share")
	a.keepsOut(w, "Lock", writer)
	a.release()
	b.release()
	c.keepsOut(w, "Lock", writer)
	c.release()
	w.granted(writer, e.prompt, "each share was unlocked")
	w.release()
}

func downgradeAdmitsNoWriter(e *env) {
	a, b, w := e.rwTrio()
	a.mayDowngrade()
	a.take()
	writer := w.startLock(e.ctx)
	reader := b.startShare(e.ctx)
	a.weaken()
	a.keepsOut(w, "Lock", writer)
	b.queued(reader, "C, who waits for A")
	a.prolong()
	a.release()
	w.granted(writer, e.prompt, "A has unlocked")
	w.release()
	b.granted(reader, e.prompt, "C has unlocked")
	b.release()
}
