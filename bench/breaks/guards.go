package breaks

// guards are scenarios that other libraries keep with their usual settings, and tests of this
// module, that look for a break of theirs.
var guards = map[string][]string{
	"redsync-stopped-node-delays-unlock": {
		"Unlock returns by the deadline though the server is silent", "redlock.TestAcquire_isDecidedByAMajority",
	},
	"redsync-late-set-outlives-unlock": {
		"a take that arrives late leaves nothing behind", "a Lock that ended while the server was silent leaves nothing behind",
		"redlock.TestMinority_thatWakesKeepsNoKey", "redisscript.TestLate_whatArrivesTooLateGetsNothing",
	},
	"redsync-cleans-up-on-the-callers-context":  {"redigo.TestCancel_atAnyMoment"},
	"redsync-interrupted-lock-says-only-failed": {"the error of an interrupted Lock matches ctx.Err and its cause"},
	"redsync-lost-reply-says-taken":             {"a Lock whose replies are lost for a while is not held up by itself"},
	"redsync-failed-attempts-send-releases":     {"redlock.TestFaults_releasesAreFew", "redlock.TestAcquire_ofALockThatAllDenyTakesNothing"},
	"redislock-lost-reply-says-not-held":        {"a release that is sent again says nil or ErrLost, and frees the lock"},
	"redislock-gives-up-after-one-ttl":          {"a waiter wakes when the holder unlocks"},
	"redislock-waiters-in-lockstep":             {"redisscript.TestQueueScripts_aHandOverCostsTheSameHoweverManyWait", "core.TestLock_pausesBetweenAttemptsAsTheBackoffSays"},
	"rueidislock-renews-without-end":            {"redis.TestCounts_allDueRenewalsOfAClientAreOnePipeline", "core.TestRenewal_everyThirdOfTheTTL"},
	"rueidislock-release-wakes-everybody":       {"redisscript.TestQueueScripts_aHandOverCostsTheSameHoweverManyWait", "redis.TestQueue_idleWaitersCostOneLookASecond"},
	"rueidislock-swallows-errors-while-waiting": {"an outage is an error or a wait, never ErrHeld", "a waiter whose connections were broken is served, or told", "core.TestLock_waiterDoesNotRideOutALongOutage"},
	"rueidislock-overrun-attempt-waits-for-a-free-lock": {
		"a take whose reply was lost leaves nothing behind", "on a slow link Lock succeeds only with half its TTL left", "core.TestLock_withLessThanHalfATTLLeftIsGivenBack",
	},
	"concurrency-mutex-lost-reply-leaves-the-key":           {"a take whose reply was lost leaves nothing behind", "etcd.TestTakeAfterItsRelease"},
	"concurrency-mutex-unlock-again-deletes-a-newer-hold":   {"a second Unlock leaves the next hold alone", "an Unlock that arrives late leaves the new hold alone"},
	"concurrency-mutex-unlock-after-the-lease-is-gone":      {"a hold that was ended behind its holder's back is lost", "etcd.TestSession_revokedUnderTheHolder"},
	"concurrency-mutex-cancelled-wait-outlasts-its-context": {"Lock returns soon after ctx ends though the server is silent"},
	"zk-lock-cannot-be-cancelled":                           {"Lock returns soon after ctx is cancelled while it waits"},
	"zk-lock-error-leaves-the-node":                         {"a take whose reply was lost leaves nothing behind"},
	"zk-lock-vanished-node-is-for-ever":                     {"a hold that was ended behind its holder's back is lost", "a Locker can be locked again after a loss and its Unlock", "zookeeper.TestNode_removedUnderTheHolder"},
	"zk-lock-foreign-child-fails-everybody":                 {"zookeeper.TestForeignNodes_doNoHarm", "etcd.TestForeignKeys_doNoHarm"},
	"zk-lock-unlock-outlasts-the-session":                   {"Unlock returns by the deadline though the server is silent"},
}

// Reported are breaks that are known from issues of other libraries. Nothing here shows them again.
var Reported = []Break{
	{
		Lock: "valkeyrie", What: "Unlock hangs for ever after the goroutine of the holder has ended.",
		Looks: []string{"Unlock of a hold that expired says ErrLost", "Unlock returns by the deadline though the server is silent"},
	},
	{
		Lock: "valkeyrie", What: "After a renewal with a TTL below a second, the lock has no expiry at all.",
		Looks: []string{"Extend keeps a hold past its TTL", "a hold expires after its TTL", "renewal ends with Unlock"},
	},
	{
		Lock: "Redisson", What: "A renewal that goes on after Unlock keeps the lock for ever.",
		Looks: []string{"renewal ends with Unlock", "a renewed hold that expired at a silent server stays lost"},
	},
	{
		Lock: "Redisson", What: "Token counters are never removed.",
		Looks: []string{"redis.TestStorage_isBoundedAfterManyNames", "redis.TestStorage_theHashExpiresAMinuteAfterTheLock"},
	},
	{
		Lock: "Redisson", What: "A stale holder that asks for its token reads its successor's.",
		Looks: []string{"the token is 0 after a loss", "a process that was stopped past its TTL knows when it wakes", "core.TestHold_neverSpeaksForItsSuccessor"},
	},
	{
		Lock: "ubgo/lock", What: "The token is from a second command, INCR after SETNX: a holder that is paused between the two gets a larger token than its successor.",
		Looks: []string{"tokens rise in the order of the holds, with many contending", "redis.TestCounts_eachOperationIsOneScriptInOneRoundTrip"},
	},
	{
		Lock: "most", What: "A holder is not told that its lock is lost.",
		Looks: []string{"Lost fires no later than Deadline", "Lost fires in time though the server is silent"},
	},
	{
		Lock: "most", What: "One error stands for three cases: another holds the lock, the lock is lost, the server is unreachable.",
		Looks: []string{"an outage is an error or a wait, never ErrHeld", "Unlock after a take-over says ErrLost", "TryLock of a held lock says ErrHeld"},
	},
}
