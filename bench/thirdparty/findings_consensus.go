package thirdparty

import "slices"

var etcdFindings = []Finding{
	{
		Cause: "the key of a Mutex is named after the lease of its session, so two Mutexes of one session are one owner, and both hold",
		Scenarios: slices.Concat([]string{
			"a held lock is not granted to the same client",
			"many Lockers of one client exclude one another",
		}, histories),
		Repro: "TestRepro_concurrencyMutex_twoOfOneSessionBothHold",
	},
	{
		Cause:     "the error of a Lock whose ctx ends while it waits is only ctx.Err(): it does not tell that another had the lock",
		Scenarios: []string{waitSaysHeld}, Repro: "TestRepro_concurrencyMutex_interruptedLockDoesNotSayHeld",
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
		Repro: "TestRepro_concurrencyMutex_unlockAfterTheLeaseIsGone",
	},
	{
		Cause:     "Done may be closed so late that another already has the lock: the client checks only once a second whether a session had no answer for a TTL; for the first answer of a new session it waits DialTimeout plus one second",
		Scenarios: []string{expiredStaysLost}, Repro: "TestRepro_concurrencyMutex_doneComesLate",
	},
	{
		Cause:     "the name is used as a prefix of keys without a check",
		Scenarios: anyName, Repro: "TestRepro_concurrencyMutex_takesAnyName",
	},
	{
		Cause:     "TryLock, KeepAliveOnce and Unlock wait as long as ctx allows, even after the end of the lease",
		Scenarios: slices.Concat(unbounded, []string{downLock, unlockLate, extendLate}), Repro: "TestRepro_concurrencyMutex_callsOutlastTheLease",
	},
	{
		Cause:     "all keys below a name belong to its queue, also the keys of another name that begins with this name and a slash",
		Scenarios: []string{"different names never collide"}, Repro: "TestRepro_concurrencyMutex_namesNest",
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
		Scenarios: noToken,
		Repro:     "TestRepro_zkLock_noFencingToken", Lacks: true,
	},
	{
		Cause:     "Lock takes no ctx: the caller cannot end its wait, and is not told that another has the lock",
		Scenarios: []string{waitSaysHeld}, Repro: "TestRepro_zkLock_cannotBeCancelled",
	},
	{
		Cause:     "a hold lasts as long as the session, and a Lock has no method that reports the time left, and none that extends the hold",
		Scenarios: []string{extendUnanswered, extendLate}, Repro: "TestRepro_zkLock_hasNoExtend", Lacks: true,
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
		Scenarios: []string{takeUnanswered}, Repro: "TestRepro_zkLock_connectingAgainKeepsTheNode",
	},
	{
		Cause: "Lock returns an error if it cannot parse the name of a child node, so one foreign node makes everybody's Lock fail",
		Repro: "TestRepro_zkLock_foreignChildFailsEverybody",
	},
	{
		Cause:     "after an error that follows the create, the node stays in the queue, before everybody else, until the session ends",
		Scenarios: []string{takeLate, takeTooLate}, Repro: "TestRepro_zkLock_errorLeavesTheNode",
	},
	{
		Cause: "Unlock of a node that is gone returns an error and changes nothing: after that, Lock of this object always returns ErrDeadlock",
		Repro: "TestRepro_zkLock_vanishedNodeIsForEver",
	},
}
