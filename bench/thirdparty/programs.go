package thirdparty

// Languages of the libraries that are judged as programs.
const (
	Python     = "Python"
	JavaScript = "JavaScript"
	Shell      = "shell"
)

// Programs are the locks of other languages that were put through the suite, each by an adapter in the folder adapters that speaks the
// protocol of docs/judge-any-language.md. What they run on is unpacked by tools/adapters.sh.
func Programs() []Library {
	return []Library{
		{
			Name: "redis-py", Language: Python, Release: "4.3.4", Test: "TestProgram_redispy", Findings: redispyFindings,
			Settings: "Lock with the TTL as its timeout, sleep 0.1 s; extend with replace_ttl",
		},
		{
			Name: "kazoo", Language: Python, Release: "2.8.0", Test: "TestProgram_kazoo", Findings: kazooFindings,
			Settings: "the TTL is the session's timeout; a listener tells of a session that is lost",
		},
		{
			Name: "redlock (npm)", Language: JavaScript, Release: "5.0.0-beta.2", Test: "TestProgram_redlock", Findings: npmRedlockFindings,
			Settings: "one node; acquire with retryCount 0; all other settings are the defaults; ioredis",
		},
		{
			Name: "etcd3 (npm)", Language: JavaScript, Release: "1.1.2", Test: "TestProgram_etcd3", Findings: npmEtcd3Findings,
			Settings: "a lease of the TTL, in whole seconds",
		},
		{
			Name: "flock(1)", Language: Shell, Release: "util-linux", Test: "TestProgram_flock", Findings: flockFindings,
			Settings: "a file for each name, on one machine; no server",
		},
	}
}

var redispyFindings = []Finding{
	{
		Cause:     "a Lock does not measure its TTL: only the server tells it that a hold has ended; if acquire is called on the same object after a loss, it takes a new hold, and does not report the loss",
		Scenarios: []string{lostAwaits, cutOff},
		Repro:     "TestRepro_redispy_doesNotCountItsTime",
	},
	{
		Cause:     "the TTL counts from when SET arrives: a SET that arrives late holds the lock for a whole TTL, though its acquire has failed",
		Scenarios: []string{takeTooLate, takeItself},
		Repro:     "TestRepro_redispy_aLateAcquireHolds",
	},
}

var kazooFindings = []Finding{
	{
		Cause:     "a Lock that is cancelled raises CancelledError, which does not tell whether another has the lock",
		Scenarios: []string{waitSaysHeld},
		Repro:     "TestRepro_kazoo_cancelledDoesNotSayHeld",
	},
	{
		Cause: "acquire and release wait for the connection, whatever timeout and cancel() say: these have an effect only while the lock waits for the contender ahead of it in the queue",
		Scenarios: []string{
			unlockUnanswered, takeUnanswered, unlockNext, silentLock, silentTryLock, cancelledUnlock, silentTrace, silentUnlock, downLock,
		},
		Sometimes: []string{"the lock can be taken after a restart"},
		Repro:     "TestRepro_kazoo_timeoutDoesNotBoundRequests",
	},
	{
		Cause: "a Lock does not check its session: a listener is told of a loss only when the client has a connection again, and is_acquired does not change",
		Scenarios: []string{
			"a random history is that of one lock though clients are cut off",
			"a random history is that of one lock though processes are stopped",
			"a random history is that of one lock though servers are silent",
			"a random history is that of one lock though faults of all kinds come and go",
			"a random history is that of one lock though servers crash",
		},
		Repro: "TestRepro_kazoo_isAcquiredStays",
	},
}

var npmRedlockFindings = []Finding{{
	Cause:     "the TTL counts from when the script arrives: a script that arrives late holds the lock for a whole TTL, though its acquire has failed",
	Scenarios: []string{takeTooLate},
	Repro:     "TestRepro_npmRedlock_aLateAcquireHolds",
}}

var npmEtcd3Findings = []Finding{
	{
		Cause:     "acquire takes no time limit and cannot be cancelled, and a request that was not answered is sent again on another connection",
		Scenarios: []string{takeLate, takeTooLate},
		Repro:     "TestRepro_npmEtcd3_cannotBeCancelled",
	},
	{
		Cause: "a Lock does not report that its lease is lost: the caller learns of the loss only if release fails, and sometimes release succeeds in spite of the loss",
		Scenarios: []string{
			"a random history is that of one lock though clients are cut off",
			"a random history is that of one lock though processes are stopped",
			"a random history is that of one lock though servers are silent",
			"a random history is that of one lock though faults of all kinds come and go",
			"a random history is that of one lock though servers crash",
		},
		Repro: "TestRepro_npmEtcd3_doesNotTellOfALoss",
	},
}

var flockFindings []Finding
