package thirdparty

import "slices"

var etcdFindings = []Finding{
	{
		Cause: "the key of a Mutex is named after its session's lease, so that two Mutexes of one session are one owner and both hold",
		Scenarios: slices.Concat([]string{
			"a held lock is not granted to the same client",
			"many Lockers of one client exclude one another",
		}, histories),
		Repro: "TestRepro_concurrencyMutex_twoOfOneSessionBothHold",
	},
	{
		Cause:     "a Lock whose ctx ends while it waits says ctx.Err() alone, not that the lock was taken",
		Scenarios: []string{waitSaysHeld}, Repro: "TestRepro_concurrencyMutex_interruptedLockDoesNotSayHeld",
	},
	{
		Cause: "a Mutex does not look at its lease: when that is gone Unlock answers nil and Header stays; a Session tells by Done, but not one that nobody renews",
		Scenarios: slices.Concat([]string{
			"Unlock of a hold that expired says ErrLost",
			"Unlock after a take-over says ErrLost",
			lostAwaits,
			"the token is 0 after a loss",
			cutOff,
			"a hold that was granted over a slow link is over before another's begins",
			"a counter guarded by tokens loses no update",
		}, histories),
		Repro: "TestRepro_concurrencyMutex_unlockAfterTheLeaseIsGone",
	},
	{
		Cause:     "the client looks once a second which sessions have had no answer for their TTL, and for the first answer waits for its DialTimeout and a second: Done may come when another has the lock",
		Scenarios: []string{expiredStaysLost}, Repro: "TestRepro_concurrencyMutex_doneComesLate",
	},
	{
		Cause:     "the name is a prefix of keys as it is, and nobody looks at it",
		Scenarios: anyName, Repro: "TestRepro_concurrencyMutex_takesAnyName",
	},
	{
		Cause:     "TryLock, KeepAliveOnce and Unlock wait as long as ctx allows, the lease does not bound them",
		Scenarios: slices.Concat(unbounded, []string{downLock, unlockLate, extendLate}), Repro: "TestRepro_concurrencyMutex_callsOutlastTheLease",
	},
	{
		Cause:     "all keys below a name belong to its queue, those of names that go on with a slash too",
		Scenarios: []string{"different names never collide"}, Repro: "TestRepro_concurrencyMutex_namesNest",
	},
	{
		Cause: "Lock leaves its key to the session when the reply to its Txn is lost, ahead of everybody else for as long as that lives",
		Repro: "TestRepro_concurrencyMutex_lostReplyLeavesTheKey",
	},
	{
		Cause: "Unlock deletes by name: sent again after a lost reply it deletes the newer hold of another Mutex of the session",
		Repro: "TestRepro_concurrencyMutex_unlockAgainDeletesANewerHold",
	},
	{
		Cause: "a Lock that gives up waiting deletes its key on the client's ctx, and does not return while the server is silent",
		Repro: "TestRepro_concurrencyMutex_cancelledWaitOutlastsItsContext",
	},
}

var zkFindings = []Finding{
	{
		Cause:     "a hold has no number that it tells, so that a resource cannot refuse a stale holder",
		Scenarios: noToken,
		Repro:     "TestRepro_zkLock_noFencingToken", Lacks: true,
	},
	{
		Cause:     "Lock takes no ctx: it cannot be told to stop waiting, and does not say that it waits",
		Scenarios: []string{waitSaysHeld}, Repro: "TestRepro_zkLock_cannotBeCancelled",
	},
	{
		Cause:     "a hold lasts as long as the session, and a Lock has no method that asks for how long that is, or prolongs it",
		Scenarios: []string{extendUnanswered, extendLate}, Repro: "TestRepro_zkLock_hasNoExtend", Lacks: true,
	},
	{
		Cause:     "a hold ends when the server says so, which does not count the time that it was down, and may hear of the client before it counts that it was stopped: a holder cut off for longer than the time-out holds on",
		Scenarios: []string{expiredStaysLost}, Repro: "TestRepro_zkLock_outlastsItsTimeOut",
	},
	{
		Cause: "Unlock takes no ctx: without a connection it waits for the next attempt to connect, one each second, however short the session",
		Repro: "TestRepro_zkLock_unlockOutlastsTheSession",
	},
	{
		Cause:     "the client connects again when nothing comes back, and so renews the session: a node whose creation was not answered is in the queue for longer than one time-out",
		Scenarios: []string{takeUnanswered}, Repro: "TestRepro_zkLock_connectingAgainKeepsTheNode",
	},
	{
		Cause: "children whose names it cannot parse are an error, so that one foreign node fails everybody's Lock",
		Repro: "TestRepro_zkLock_foreignChildFailsEverybody",
	},
	{
		Cause:     "an error after the create leaves the node in the queue, ahead of everybody else until the session ends",
		Scenarios: []string{takeLate, takeTooLate}, Repro: "TestRepro_zkLock_errorLeavesTheNode",
	},
	{
		Cause: "Unlock of a node that is gone is an error that changes nothing: that object says ErrDeadlock for ever after",
		Repro: "TestRepro_zkLock_vanishedNodeIsForEver",
	},
}
