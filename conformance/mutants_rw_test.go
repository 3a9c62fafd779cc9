package conformance_test

import "github.com/go-locker/locker/conformance"

// flawedRW is a naive read-write lock with a flaw.
func flawedRW(flaw, killer string) mutant {
	return mutant{flaw, killer, func() conformance.Harness { return naiveRWLocks(flaw) }}
}

func readWriteMutants() []mutant {
	const history = "a random history of readers and writers is that of one read-write lock"
	return []mutant{
		flawedRW("readers exclude each other", "readers share the lock"),
		flawedRW("at most five readers", "readers share the lock"),
		flawedRW("a writer comes in beside readers", "readers keep a writer out until the last of them has gone"),
		flawedRW("the last reader wakes no writer", "readers keep a writer out until the last of them has gone"),
		flawedRW("readers come in beside a writer", "a writer keeps readers out"),
		flawedRW("a plain lock is another lock", "a plain lock of the name and shares exclude each other"),
		flawedRW("a token for each reader", "shares held at the same time have one token, between those of the writers"),
		flawedRW("another token from the fifth reader on", "shares held at the same time have one token, between those of the writers"),
		flawedRW("the next writer has the readers' token", "shares held at the same time have one token, between those of the writers"),
		flawedRW("a release is a count", "a share that is released twice does not end another's"),
		flawedRW("a release is a count", "Unlock of a share that expired ends no other's"),
		flawedRW("one TTL for all readers", "a share expires after its own TTL though others extend theirs"),
		flawedRW("a share that joins cuts those of others", "a share expires after its own TTL though others extend theirs"),
		flawedRW("an Extend cuts the shares of others", "a share expires after its own TTL though others extend theirs"),
		flawedRW("a share never expires", "a share that expired is lost, and its holder knows"),
		flawedRW("Extend says nil of a share that ended", "a share that expired is lost, and its holder knows"),
		flawedRW("Extend revives a share that ended", "a share that expired is lost, and its holder knows"),
		flawedRW("an upgrade waits for itself", "an upgrade is refused at once, and the share stays"),
		flawedRW("a downgrade has a new token", "a downgrade keeps the hold and its token"),
		flawedRW("a downgrade cuts the TTL", "a downgrade keeps the hold and its token"),
		flawedRW("a downgrade checks no owner", "a downgrade of a lost hold says ErrLost, and leaves the new hold alone"),
		flawedRW("a downgrade wakes nobody", "a downgrade lets readers in and keeps writers out"),
		flawedRW("a downgrade is a release and a take", "a downgrade lets no writer in between"),
		flawedRW("readers are admitted while a writer is first", "readers that come after a waiting writer wait for it"),
		flawedRW("readers are admitted while a writer is first", "readers that overlap without end do not starve a writer"),
		flawedRW("of a run of readers only the first is woken", "a writer's Unlock lets in all readers up to the next writer"),
		flawedRW("readers are admitted while others are let in", "a writer's Unlock lets in all readers up to the next writer"),
		flawedRW("of a run of readers an expiry lets in the first", "a writer's expiry lets in all readers that wait"),
		flawedRW("writers pass readers", "writers that come without end do not starve a reader"),
		flawedRW("a writer that gives up wakes nobody", "a writer that gives up lets in the readers behind it"),
		flawedRW("a writer that gives up lets in all readers", "when a writer gives up, readers behind the next writer still wait"),
		flawedRW("a reader that gives up takes its neighbours along", "a reader that gives up leaves nothing behind"),
		flawedRW("a reader that gives up keeps its place", "a reader that gives up leaves nothing behind"),
		flawedRW("one writer in thirty comes in beside readers", history),
		flawedRW("one token in thirty is the reader's own", history),
		flawedRW("a downgrade is a release and a take", history),
	}
}
