package thirdparty

import "slices"

// Library is a lock of another library, with the settings that its adapter uses.
type Library struct {
	Name     string // unique
	Module   string // empty: it is one of Programs
	Language string // empty: Go
	Release  string // of one of Programs: the version in its hello
	Test     string // which puts it through the suite
	Settings string
	Findings []Finding
}

// Finding is something that a library does otherwise than the contract says.
type Finding struct {
	// Cause is one sentence in terms of the library's design.
	Cause string
	// Scenarios are those of the suite that fail for it, by name. Some need luck, and there are findings that no
	// scenario sees: those of other settings, and those that an adapter can avoid.
	Scenarios []string
	// Sometimes are scenarios that need no luck of other locks, and of this one do.
	Sometimes []string
	// Lacks is set if the library does not have what the scenarios ask for, such as fencing tokens:
	// it breaks no promise of its own there. What a program does not claim is skipped by the suite,
	// which is the same.
	Lacks bool
	// Repro is the test that shows it with the library's own API; empty: a scenario does, each time.
	Repro string
}

// Why is what a result of the suite says of the finding.
func (f Finding) Why() string {
	if f.Repro == "" {
		return f.Cause
	}
	return f.Cause + ": see " + f.Repro
}

// All returns the libraries in Go and those in other languages.
func All() []Library { return slices.Concat(Libraries(), Programs()) }

// Libraries are all that were put through the suite.
func Libraries() []Library {
	const redsync, etcd = "github.com/go-redsync/redsync/v4", "go.etcd.io/etcd/client/v3"
	return []Library{
		{
			Name: "redsync", Module: redsync, Test: "TestRedsync", Findings: redsyncFindings,
			Settings: "one node; a Mutex for each Lock, no limit of tries, WithFailFast, WithTimeoutFactor(0.25); go-redis with ContextTimeoutEnabled",
		},
		{
			Name: "redsync, three nodes", Module: redsync, Test: "TestRedsync_threeNodes",
			Settings: "three nodes, otherwise the same",
			Findings: slices.Concat(redsyncFindings, redsyncQuorumFindings),
		},
		{
			Name: "redislock", Module: "github.com/bsm/redislock", Test: "TestRedislock", Findings: redislockFindings,
			Settings: "LinearBackoff(20ms); if a ctx has no deadline, the adapter sets one a year from now; go-redis with ContextTimeoutEnabled",
		},
		{
			Name: "rueidislock", Module: "github.com/redis/rueidis", Test: "TestRueidislock", Findings: rueidislockFindings,
			Settings: "KeyMajority 1, NoLoopTracking, TryNextAfter as long as the TTL; a ctx of its own for each hold",
		},
		{
			Name: "concurrency.Mutex", Module: etcd, Test: "TestConcurrencyMutex", Findings: etcdFindings,
			Settings: "a Locker of New has a Session of its own, and Lockers of Client share the Session of their client; when the lock is held, the adapter ends the renewal of the Session (Orphan)",
		},
		{
			Name: "zk.Lock", Module: "github.com/go-zookeeper/zk", Test: "TestZkLock", Findings: zkFindings,
			Settings: "the adapter makes a new zk.Lock for each call of Lock, and calls it in a goroutine that may run on after ctx; a timer ends holds that are not to be renewed; an Unlock that fails is repeated",
		},
	}
}

// deviations are the scenarios of its findings that a library is known to fail, and why. A history may fail for several
// reasons.
func (l Library) deviations(of func(Finding) []string) map[string]string {
	all := make(map[string]string)
	for _, f := range l.Findings {
		for _, scenario := range of(f) {
			why := f.Why()
			if other, ok := all[scenario]; ok {
				why = other + "; or " + why
			}
			all[scenario] = why
		}
	}
	return all
}

// Scenarios that several libraries fail for one reason each.
var (
	noToken = []string{
		"tokens rise from process to process",
		"tokens rise over the Lockers of one client",
		"tokens rise after an expiry",
		"tokens rise in the order of the holds, with many contending",
		"tokens rise though the server restarts with its data",
		"the token is 0 without a hold",
		"a late write with the token of a lost hold is refused",
		"a counter guarded by tokens loses no update",
	}
	anyName   = []string{"an empty name is refused", "a name that is not UTF-8 is refused"}
	leftovers = []string{
		"a Lock cancelled at any moment leaves nothing behind",
		"nothing is held after many goroutines have locked and unlocked",
	}
	// A call without a deadline that waits for a server which is silent, down, or cut off.
	unbounded = []string{silentUnlock, downUnlock, unlockUnanswered, unlockNext}
	histories = []string{ // but for the first with faults
		"a random history is that of one lock",
		"a random history is that of one lock though servers are silent",
		"a random history is that of one lock though clients are cut off",
		"a random history is that of one lock though faults of all kinds come and go",
		"a random history is that of one lock though servers crash",
	}
)

const (
	waitSaysHeld     = "the error of an interrupted wait matches ErrHeld"
	silentLock       = "Lock returns soon after ctx ends though the server is silent"
	silentFirst      = "the first Lock of a process returns soon after ctx ends, after whichever request the server falls silent"
	silentTrace      = "a Lock that ended while the server was silent leaves nothing behind"
	silentTryLock    = "TryLock returns soon after ctx ends though the server is silent"
	silentExtend     = "Extend returns soon after ctx ends though the server is silent"
	cancelledUnlock  = "Unlock returns soon after ctx ends though the server is silent"
	silentUnlock     = "Unlock returns by the deadline though the server is silent"
	lostAwaits       = "Lock says ErrLost until a lost hold is unlocked"
	renewedLasts     = "a renewed hold outlives its TTL"
	expiredStaysLost = "a renewed hold that expired at a silent server stays lost"

	downLock         = "an outage is an error or a wait, never ErrHeld"
	downUnlock       = "a hold ends in time though the server is down"
	takeUnanswered   = "a take whose reply was lost leaves nothing behind"
	takeLate         = "a take that arrives late leaves nothing behind"
	takeTooLate      = "a take that arrives more than a TTL late takes nothing"
	takeItself       = "a Lock whose first reply was lost does not wait for its own TTL to end"
	unlockLate       = "an Unlock that arrives late leaves the new hold alone"
	unlockUnanswered = "an Unlock whose reply was lost has freed the lock"
	unlockNext       = "an Unlock that arrives late leaves the next hold of the same Locker alone"
	extendUnanswered = "an Extend whose reply was lost leaves the hold as it was"
	extendLate       = "an Extend that arrives late leaves the new hold alone, and revives nothing"
	stoppedHistory   = "a random history is that of one lock though processes are stopped"
	cutOff           = "a holder that is cut off knows in time, and harms nobody when it is back"
)

var redsyncFindings = []Finding{
	{
		Cause:     "a hold has a random value and no number that rises, so a resource cannot refuse a stale holder",
		Scenarios: noToken, Lacks: true,
	},
	{
		Cause:     "the name is used as the key without a check",
		Scenarios: anyName,
	},
	{
		Cause:     "the error of a Lock whose ctx ends while it waits is only ErrFailed: it does not tell that another had the lock",
		Scenarios: []string{waitSaysHeld},
	},
	{
		Cause:     "the key that a failed attempt left behind is released with the caller's ctx; if this has ended, the key stays for a TTL",
		Scenarios: leftovers, Repro: "TestRepro_redsync_cleansUpOnTheCallersContext",
	},
	{
		Cause:     "UnlockContext and ExtendContext wait as long as ctx and the client allow, even after the expiry of the hold",
		Scenarios: slices.Concat(unbounded, []string{silentExtend, cancelledUnlock, cutOff}),
	},
	{
		Cause:     "only the caller renews a hold",
		Scenarios: []string{renewedLasts}, Lacks: true,
	},
	{
		Cause: "the client sends SET NX again when its reply is lost, and finds the lock taken by its own first request",
		Repro: "TestRepro_redsync_lostReplySaysTaken",
	},
	{
		Cause:     "a SET that arrives after the release of its hold sets the key on the node for a whole TTL",
		Scenarios: []string{takeTooLate}, Repro: "TestRepro_redsync_lateSetOutlivesUnlock",
	},
	{
		Cause: "each attempt that fails also sends a release, so each try of a waiter costs two commands on each node",
		Repro: "TestRepro_redsync_failedAttemptsSendReleases",
	},
}

var redsyncQuorumFindings = []Finding{
	{
		Cause: "by default Unlock and Extend wait for all nodes: if one is stopped, they take as long as the client's time-outs",
		Repro: "TestRepro_redsync_stoppedNodeDelaysUnlock",
	},
}

var redislockFindings = []Finding{
	{
		Cause:     "a hold has a random token and no number that rises, so a resource cannot refuse a stale holder",
		Scenarios: noToken, Lacks: true,
	},
	{
		Cause:     "the name is used as the key without a check",
		Scenarios: anyName,
	},
	{
		Cause:     "an Obtain that is interrupted does not remove the key that it has set, which stays for a TTL",
		Scenarios: leftovers, Repro: "TestRepro_redislock_interruptedObtainLeavesItsKey",
	},
	{
		Cause:     "Obtain, Refresh and Release do not return when ctx is cancelled, only at its deadline; if ctx has no deadline, Obtain and Refresh return after one TTL, and Release may wait without a limit",
		Scenarios: slices.Concat(unbounded, []string{silentLock, silentFirst, silentTryLock, silentExtend, cancelledUnlock, silentTrace, takeUnanswered, cutOff}),
	},
	{
		Cause:     "a Lock object does not store when its hold expires: only the server knows of a loss",
		Scenarios: []string{lostAwaits},
	},
	{
		Cause:     "only the caller renews a hold",
		Scenarios: []string{renewedLasts}, Lacks: true,
	},
	{
		Cause:     "the request of Obtain is applied however late it arrives, and then sets the key for a whole TTL",
		Scenarios: []string{takeTooLate},
	},
	{
		Cause: "the client sends Release again when its reply is lost, and Release then reports that the lock was not held",
		Repro: "TestRepro_redislock_lostReplySaysNotHeld",
	},
	{
		Cause: "Obtain without options does not wait; with a RetryStrategy and a ctx without a deadline it gives up after one TTL",
		Repro: "TestRepro_redislock_givesUpAfterOneTTL",
	},
	{
		Cause: "LinearBackoff has no jitter: waiters that began together always ask together, and only one of them gets the lock in a period",
		Repro: "TestRepro_redislock_waitersInLockstep",
	},
}

var rueidislockFindings = []Finding{
	{
		Cause:     "a hold is a ctx and has no number that rises, so a resource cannot refuse a stale holder",
		Scenarios: noToken, Lacks: true,
	},
	{
		Cause:     "the name becomes part of the key without a check",
		Scenarios: anyName,
	},
	{
		Cause:     "the error of a WithContext whose ctx ends while it waits is only ctx.Err(): it does not tell that another had the lock",
		Scenarios: []string{waitSaysHeld},
	},
	{
		Cause:     "WithContext treats an error of the server as a held lock, and waits for a release until ctx ends",
		Scenarios: []string{takeItself}, Repro: "TestRepro_rueidislock_swallowsErrorsWhileWaiting",
	},
	{
		Cause:     "a waiter may miss all further releases: if two goroutines race after a failed attempt, one of them removes the entry (the gate) through which the waiter is told of releases",
		Scenarios: []string{"waiters miss none of many unlocks", "a grant to a waiter whose ctx ends just then is given back"}, Repro: "TestRepro_rueidislock_missesAnUnlock",
		// A waiter that hears of nothing any more waits there for as long as it may.
		Sometimes: []string{"an Unlock overtaken by the expiry leaves the new hold alone"},
	},
	{
		Cause: "a hold is extended by its own timer and in no other way",
		Scenarios: []string{
			"Extend keeps a hold past its TTL",
			"an extended hold lasts one TTL from its Extend, and no longer",
			extendUnanswered, extendLate, "half a minute ends no hold that is extended, no wait, and no order of tokens",
		},
		Lacks: true,
	},
	{
		Cause:     "a hold ends only when the server reports it, or when a renewal had no answer for a whole KeyValidity: a holder that is cut off believes that it holds long after its key has expired",
		Scenarios: slices.Concat([]string{cutOff}, histories[1:]),
		// The server tells the former holder and the next one at once, and either may be the first to ask what it means.
		Sometimes: []string{"Extend after a take-over says ErrLost", "Unlock after a take-over says ErrLost"},
	},
	{
		Cause:     "WithContext returns only after the clean-up of its failed attempt, which takes up to KeyValidity",
		Scenarios: []string{silentLock, silentFirst, silentTryLock, downLock, takeUnanswered},
	},
	{
		Cause:     "a hold is released by a CancelFunc, which returns no error",
		Scenarios: []string{cancelledUnlock, silentUnlock, downUnlock, unlockUnanswered, unlockNext},
	},
	{
		Cause: "with default options each renewal invalidates the key that the holder watches, which causes the next renewal, thousands of times a second",
		Repro: "TestRepro_rueidislock_renewsWithoutEnd",
	},
	{
		Cause: "an attempt that takes longer than TryNextAfter (by default 20 ms) is undone. With NoLoopTracking this wakes nobody: WithContext waits for ever although the lock is free",
		Repro: "TestRepro_rueidislock_overrunAttemptWaitsForAFreeLock",
	},
}

var etcdFindings = []Finding{
	{
		Cause: "the key of a Mutex is named after the lease of its session, so two Mutexes of one session are one owner, and both hold",
		Scenarios: slices.Concat([]string{
			"a held lock is not granted to the same client",
			"many Lockers of one client exclude one another", "everyone who waits is served",
		}, histories),
	},
	{
		Cause:     "the error of a Lock whose ctx ends while it waits is only ctx.Err(): it does not tell that another had the lock",
		Scenarios: []string{waitSaysHeld},
	},
	{
		Cause: "a Mutex does not check its lease: after the lease has ended, Unlock returns nil, and Header is unchanged; Done of the Session reports this end only if the client still renews the Session",
		Scenarios: slices.Concat([]string{
			"Unlock of a hold that expired says ErrLost",
			"Unlock after a take-over says ErrLost",
			lostAwaits,
			"the token is 0 after a loss",
			cutOff,
			"a hold that was granted over a slow link is over before another's begins",
			"a counter guarded by tokens loses no update",
		}, histories),
	},
	{
		Cause:     "Done may be closed so late that another already has the lock: the client checks only once a second whether a session had no answer for a TTL; for the first answer of a new session it waits DialTimeout plus one second",
		Scenarios: []string{expiredStaysLost}, Repro: "TestRepro_concurrencyMutex_doneComesLate",
	},
	{
		Cause:     "the name is used as a prefix of keys without a check",
		Scenarios: anyName,
	},
	{
		Cause:     "TryLock, KeepAliveOnce and Unlock wait as long as ctx allows, even after the end of the lease",
		Scenarios: slices.Concat(unbounded, []string{downLock, unlockLate, extendLate}),
	},
	{
		Cause:     "all keys below a name belong to its queue, also the keys of another name that begins with this name and a slash",
		Scenarios: []string{"different names never collide"},
	},
	{
		Cause: "if the reply to its Txn is lost, Lock leaves its key in the queue, before everybody else, for as long as the session lives",
		Repro: "TestRepro_concurrencyMutex_lostReplyLeavesTheKey",
	},
	{
		Cause: "Unlock deletes the key by its name: if it is called again after a lost reply, it deletes the newer hold of another Mutex of the session",
		Repro: "TestRepro_concurrencyMutex_unlockAgainDeletesANewerHold",
	},
	{
		Cause: "a Lock that gives up waiting deletes its key with the client's ctx, and does not return while the server is silent",
		Repro: "TestRepro_concurrencyMutex_cancelledWaitOutlastsItsContext",
	},
}

var zkFindings = []Finding{
	{
		Cause:     "a hold does not tell a number that rises, so a resource cannot refuse a stale holder",
		Scenarios: noToken, Lacks: true,
	},
	{
		Cause:     "Lock takes no ctx: the caller cannot end its wait, and is not told that another has the lock",
		Scenarios: []string{waitSaysHeld}, Repro: "TestRepro_zkLock_cannotBeCancelled",
	},
	{
		Cause:     "a hold lasts as long as the session, and a Lock has no method that reports the time left, and none that extends the hold",
		Scenarios: []string{extendUnanswered, extendLate}, Lacks: true,
	},
	{
		Cause:     "a hold ends only when the server reports it. A holder that was cut off for longer than the time-out may keep its hold: the server does not count the time in which the server itself was down, and after a pause of the server a client's message may arrive before the server checks the time-out",
		Scenarios: []string{expiredStaysLost}, Repro: "TestRepro_zkLock_outlastsItsTimeOut",
	},
	{
		Cause: "Unlock takes no ctx: without a connection it waits for the next attempt to connect; there is one attempt a second, even if the session's time-out is below a second",
		Repro: "TestRepro_zkLock_unlockOutlastsTheSession",
	},
	{
		Cause:     "the client connects again when no answer comes, which renews the session: a node whose creation was not answered stays in the queue for longer than one time-out",
		Scenarios: []string{takeUnanswered},
	},
	{
		Cause: "Lock returns an error if it cannot parse the name of a child node, so one foreign node makes everybody's Lock fail",
		Repro: "TestRepro_zkLock_foreignChildFailsEverybody",
	},
	{
		Cause:     "after an error that follows the create, the node stays in the queue, before everybody else, until the session ends",
		Scenarios: []string{takeLate, takeTooLate},
	},
	{
		Cause: "Unlock of a node that is gone returns an error and changes nothing: after that, Lock of this object always returns ErrDeadlock",
		Repro: "TestRepro_zkLock_vanishedNodeIsForEver",
	},
}
