package conformance

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/go-locker/locker"
)

var readWriteQueueRows = []row{{
	name:     "readers that come after a waiting writer wait for it",
	promise:  "A share is not granted while a writer that asked earlier waits.",
	sources:  []string{goRWMutex, zkShared},
	needs:    []need{readsWrites},
	shows:    locker.Ordered,
	optional: true,
	body:     readersWaitForWriter,
}, {
	name:     "a writer's Unlock lets in all readers up to the next writer",
	promise:  "When a share at the head of the queue is granted, all shares up to the first writer in the queue are granted, and no others.",
	sources:  []string{goRWMutex, zkShared},
	needs:    []need{readsWrites},
	shows:    locker.Ordered,
	optional: true,
	body:     runIsLetIn,
}, {
	name:     "readers that overlap without end do not starve a writer",
	promise:  "A writer waits for the readers before it, not for those that come later.",
	sources:  []string{goRWMutex},
	needs:    []need{readsWrites},
	shows:    locker.Ordered,
	optional: true,
	chance:   true,
	body:     readersStarveNobody,
}, {
	name:     "writers that come without end do not starve a reader",
	promise:  "A reader waits for the writers before it, not for those that come later.",
	sources:  []string{goRWMutex},
	needs:    []need{readsWrites},
	shows:    locker.Ordered,
	optional: true,
	chance:   true,
	body:     writersStarveNobody,
}, {
	name:     "when a writer gives up, readers behind the next writer still wait",
	promise:  "A share is not granted while a writer that asked earlier waits, even if another writer before it gives up.",
	sources:  []string{goRWMutex, zkShared},
	needs:    []need{readsWrites},
	shows:    locker.Ordered,
	optional: true,
	body:     writerGivesUpBeforeAnother,
}, {
	name:    "a writer's expiry lets in all readers that wait",
	promise: "A hold that nobody extends or unlocks expires after one TTL, and all who wait for a share get one.",
	sources: []string{redisDocs, contractOfShares},
	needs:   []need{readsWrites, expire},
	body:    expiryLetsIn,
}, {
	name:    "a writer that is killed while it waits does not hold up the readers behind it",
	promise: "A waiter from which nothing more is heard is passed over within one TTL, and the readers behind it share the lock with those before it.",
	sources: []string{zkRecipe, zkShared},
	needs:   []need{readsWrites, processes},
	body:    killedWriter,
}, {
	name:    "a writer that is stopped while it waits does not hold up the readers behind it",
	promise: "A waiter from which nothing more is heard is passed over within one TTL, though its connections are open: the readers behind it share the lock with those before it.",
	sources: []string{zkRecipe, zkShared},
	needs:   []need{readsWrites, processes},
	body:    stoppedWriter,
}, {
	name:    "a writer that gives up lets in the readers behind it",
	promise: "Everything that a failed attempt left behind (key, queue entry, goroutine) is cleaned up: nobody waits for it.",
	sources: []string{zkRecipe, zkShared},
	needs:   []need{readsWrites},
	body:    writerGivesUp,
}, {
	name:    "a reader that gives up leaves nothing behind",
	promise: "Everything that a failed attempt left behind (key, queue entry, goroutine) is cleaned up: no share is left, and nobody else loses a place in the queue.",
	sources: []string{zkRecipe, redsyncCancel},
	needs:   []need{readsWrites},
	body:    readerGivesUp,
}}

func readersWaitForWriter(e *env) {
	a, b, w := e.rwTrio()
	a.share()
	writer := w.startLock(e.Context())
	err := b.tryRLock()
	if err == nil {
		e.doubtf("B's TryRLock succeeded while C waits for the lock")
	}
	b.want("TryRLock while C waits for the lock", err, locker.ErrHeld)
	reader := b.startShare(e.Context())
	b.queued(reader, "C, who waits for A")
	a.release()
	w.granted(writer, e.prompt, "A, the only one with a share, has unlocked")
	w.keepsOut(b, "RLock", reader)
	w.release()
	b.granted(reader, e.prompt, "C has unlocked")
	b.release()
}

// runIsLetIn has a newcomer ask while the run is let in.
func runIsLetIn(e *env) {
	all := e.rwParties(7)
	first, run, second, last, newcomer := all[0], all[1:4], all[4], all[5], all[6]
	first.take()
	var readers []<-chan error
	for _, p := range run {
		readers = append(readers, p.startShare(e.Context()))
	}
	writer := second.startLock(e.Context())
	reader := last.startShare(e.Context())
	first.release()
	if newcomer.tryRLock() == nil {
		e.doubtf("%s's TryRLock succeeded while %s waits for the lock", newcomer.who, second.who)
	}
	for i, p := range run {
		p.granted(readers[i], e.prompt, "A has unlocked, and before %s there are but readers", p.who)
	}
	run[0].keepsOut(second, "Lock", writer)
	last.queued(reader, second.who+", who waits for the lock")
	for _, p := range run {
		p.release()
	}
	second.granted(writer, e.prompt, "the readers before it have unlocked")
	second.keepsOut(last, "RLock", reader)
	second.release()
	last.granted(reader, e.prompt, "%s has unlocked", second.who)
	last.release()
}

// stream locks and unlocks until ctx ends.
func (p *party) stream(ctx context.Context, lock func(context.Context) error, hold time.Duration) {
	for ctx.Err() == nil {
		if lock(ctx) != nil {
			sleepUntil(ctx, time.Millisecond)
			continue
		}
		time.Sleep(hold/2 + rand.N(hold))
		_ = p.unlock() // that it can be lost is not the matter here
	}
}

func readersStarveNobody(e *env) {
	all := e.rwParties(6)
	w, readers := all[0], all[1:]
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	for _, p := range readers {
		e.spawn(func() { p.stream(ctx, p.rlock, e.settle()/2) })
	}
	time.Sleep(2 * e.settle())
	w.lockBy(e.prompt, "%d readers hold shares for %v, and take new ones", len(readers), e.settle()/2)
	cancel()
	w.prolong()
	w.release()
}

func writersStarveNobody(e *env) {
	all := e.rwParties(5)
	r, writers := all[0], all[1:]
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	for _, p := range writers {
		e.spawn(func() { p.stream(ctx, p.lock, e.settle()/10) })
	}
	time.Sleep(2 * e.settle())
	r.shareAfter("four writers hold the lock for a few milliseconds each, in turns")
	cancel()
	r.prolong()
	r.release()
}

func writerGivesUp(e *env) {
	a, b, w := e.rwTrio()
	a.share()
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	writer := w.startLock(ctx)
	reader := b.startShare(e.Context())
	cancel()
	e.gone(w, writer)
	b.granted(reader, e.prompt, "A has a share, and C, who waited for the lock before B, gave up")
	a.prolong()
	a.release()
	b.release()
}

func writerGivesUpBeforeAnother(e *env) {
	all := e.rwParties(5)
	a, first, b, second, last := all[0], all[1], all[2], all[3], all[4]
	a.share()
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	writer, reader := first.startLock(ctx), b.startShare(e.Context())
	next, behind := second.startLock(e.Context()), last.startShare(e.Context())
	cancel()
	e.gone(first, writer)
	b.granted(reader, e.prompt, "A has a share, and B, who waited for the lock before C, gave up")
	last.queued(behind, "D, who waits for the lock")
	a.release()
	b.keepsOut(second, "Lock", next)
	b.release()
	second.granted(next, e.prompt, "the readers before it have unlocked")
	second.keepsOut(last, "RLock", behind)
	second.release()
	last.granted(behind, e.prompt, "D has unlocked")
	last.release()
}

func expiryLetsIn(e *env) {
	name, ttl := e.name(), e.lifetime(time.Second)
	w := e.rwParty("W", name, ttl)
	run := make([]*party, 3)
	readers := make([]<-chan error, len(run))
	w.take()
	for i := range run {
		run[i] = e.rwParty(fmt.Sprintf("reader %d", i+1), name, e.long)
		readers[i] = run[i].startShare(e.Context())
	}
	for i, p := range run {
		p.granted(readers[i], ttl+slack(ttl), "W took the lock for %v and was heard of no more", ttl)
	}
	for _, p := range run {
		p.prolong()
		p.release()
	}
}

func killedWriter(e *env) { e.writerFails((*process).kill, time.Second) }

// stoppedWriter leaves a backend that cannot tell from the connections the time to notice.
func stoppedWriter(e *env) { e.writerFails((*process).stop, 8*time.Second) }

// writerFails has a writer that waits be heard of no more. The reader before it stays: the one
// behind comes in beside it.
func (e *env) writerFails(fail func(*process), ttl time.Duration) {
	name := e.name()
	ttl = e.lifetime(ttl)
	a, w, c := e.rwParty("A", name, 2*e.long+ttl), e.process("B", name, ttl), e.rwParty("C", name, ttl)
	a.share()
	w.start(e.Context())
	time.Sleep(3 * e.settle()) // it waits
	reader := c.startShare(e.Context())
	fail(w)
	c.granted(reader, ttl+slack(ttl)+2*time.Second, "A has a share, and B, which waited for the lock before it with a TTL of %v, is heard of no more", ttl)
	c.release()
	a.prolong()
	a.release()
}

// readerGivesUp has readers wait before and behind the one that gives up.
func readerGivesUp(e *env) {
	all := e.rwParties(5)
	a, b, w, neighbours := all[0], all[1], all[2], all[3:]
	a.take()
	ctx, cancel := context.WithCancel(e.Context())
	defer cancel()
	before := neighbours[0].startShare(e.Context())
	reader := b.startShare(ctx)
	behind := neighbours[1].startShare(e.Context())
	cancel()
	e.gone(b, reader)
	a.release()
	neighbours[0].granted(before, e.prompt, "A has unlocked, and B, who waited for a share, too, gave up")
	neighbours[1].granted(behind, e.prompt, "A has unlocked, and B, who waited for a share before it, gave up")
	for _, p := range neighbours {
		p.release()
	}
	time.Sleep(e.settle()) // what is left of B may want a share before C wants the lock
	w.promptly("B gave up waiting for a share, all others have unlocked")
	w.prolong()
	w.release()
}
