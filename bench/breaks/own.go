package breaks

const core = "internal/test/core"

// own are bugs of this module that were found since its first commit, the latest first: those whose
// test compiles without the mend.
var own = []ours{
	{
		name: "core-session-heard-of-in-the-last-moment-keeps-the-lock", lock: "core", by: "the simulation",
		what: "the session of a hold was renewed at the last moment, when the holder already counted the hold as over; nobody released the hold, and the lock stayed taken until the renewed session ended",
		fix:  "526b29f8", dir: core, test: "TestLoss_releasesALeaseWhoseSessionIsHeardOfAtTheLastMoment",
	},
	{
		name: "core-context-outlives-a-loss-that-is-noticed", lock: "core",
		what: "one goroutine had noticed a loss, but another still saw the context of the hold as not ended",
		by:   "a test that failed under load",
		fix:  "058702b", dir: core, test: "TestHoldContext_hasEndedThoughWhoNoticedIsStillTellingOthers",
	},
	{
		name: "etcd-try-that-left-is-granted", lock: "etcd",
		what: "a TryLock sent a request to leave the queue, got no answer, and was later granted the lock at its old place",
		fix:  "9ab923b", dir: "etcd", test: "TestAsk_ofATryThatIsToLeave",
	},
	{
		name: "zookeeper-try-that-left-is-granted", lock: "ZooKeeper",
		what: "a TryLock sent a request to leave the queue, got no answer, and was later granted the lock at its old place",
		fix:  "9ab923b", dir: "zookeeper", test: "TestAsk_ofATryThatIsToLeave",
	},
	{
		name: "postgres-try-after-a-lost-reply-is-held-up-by-itself", lock: "PostgreSQL",
		what: "a TryLock that asked again after a lost reply mistook its own hold for that of another",
		fix:  "06b7a2d", dir: "postgres", test: "TestAsk_afterATakeWhoseReplyWasLost",
	},
	{
		name: "core-try-on-a-broken-connection-fails", lock: "core",
		what: "a Lock or TryLock failed because its connection from the pool had broken long before",
		fix:  "e04c1eb", dir: core, test: "TestLock_firstRequestThatFailsAtOnceIsMadeAgain",
	},
	{
		name: "postgres-lock-on-an-ended-connection-fails", lock: "PostgreSQL",
		what: "a Lock failed because the server had ended its connection from the pool",
		fix:  "5b01096", dir: "postgres", test: "TestLock_onAConnectionThatTheServerHasEnded",
	},
	{
		name: "redlock-clocks-too-far-apart-say-held", lock: "Redlock",
		what: "if the clocks of the nodes were more than 12 hours apart, the error of Lock said that another had the lock",
		fix:  "357df6e", dir: "redlock", test: "TestTokens_ofClocksTooFarApartAreNoOtherHolder",
	},
	{
		name: "redis-reader-overtakes-a-writer", lock: "Redis",
		what: "a reader overtook a waiting writer that had once been paused and had come back",
		fix:  "5efbf2e", dir: "internal/redisscript", test: "TestShare_aWriterThatStoodStillOnceIsNotOvertakenLater",
	},
	{
		name: "zookeeper-second-unlock-says-nil", lock: "ZooKeeper",
		what: "after many shares were ended by force, an Unlock that was sent again returned nil for a hold that was lost",
		fix:  "0aa3ad6", dir: "zookeeper", test: "TestForceRelease_ofManySharesBeforeReleasesThatAreSentAgain",
	},
	{
		name: "redis-silent-connections-keep-requests", lock: "Redis",
		what: "if two connections went silent, a Lock whose ctx ended soon could not send any request",
		fix:  "95b63d6", dir: "redis", test: "TestSilentConnections_keepNoShortLockFromBeingSent",
	},
	{
		name: "core-close-beside-a-function", lock: "core", by: "measuring",
		what: "Close released a lock before the function of Do had returned: the function ran at the same time as the next holder",
		fix:  "14daa70", dir: core, test: "TestClose_waitsForWhatRunsUnderAHold",
	},
	{
		name: "redis-share-without-a-right-ends-others", lock: "Redis",
		what: "a reader whose user lacked a right ended the shares of others",
		fix:  "3dde61f", dir: "internal/redisscript", test: "TestShare_whoLacksARightEndsNoOther",
		edits: []edit{{"internal/redisscript/share_faults_server_test.go", "inTime, \"\").Err(), \"NOPERM\", right)\n\t\tassert.Equal(t, []string{\"~a\"}", "inTime, \"\").Err(), \"\", right)\n\t\tassert.Equal(t, []string{\"~a\"}"}},
	},
	{
		name: "redis-tokens-of-shares-fall", lock: "Redis",
		what: "the tokens of shares did not rise when the server forgot a writer",
		fix:  "3dde61f", dir: "internal/redisscript", test: "TestShare_tokensRiseThoughTheServerForgetsAWriter",
		looks: []string{"tokens rise from a writer to a share though the server that lags most takes over", "redisscript.TestShare_tokensRiseThoughTheServerForgetsAWriter"},
	},
	{
		name: "redis-writer-that-never-looks-blocks", lock: "Redis",
		what: "a writer that stopped looking at its place in the queue kept readers waiting",
		fix:  "3dde61f", dir: "internal/redisscript", test: "TestShare_aWriterThatNeverLooksIsPassedOver",
	},
	{
		name: "core-readers-of-one-mutex-all-ask", lock: "core",
		what: "several goroutines waited for a share of one RWMutex, and every one of them asked the backend",
		fix:  "bedcbae", dir: ".", test: "TestRWMutex_manyGoroutinesAskTheBackendOnceEach",
		looks: []string{"core.TestRWMutex_manyGoroutinesAskTheBackendOnceEach"},
	},
	{
		name: "core-reader-misses-close", lock: "core",
		what: "two goroutines used one RWMutex, and one waited for the end of the other's share; the waiting goroutine was not told of Close",
		fix:  "bedcbae", dir: ".", test: "TestRWMutex_whoWaitsForItsOwnHoldIsToldOfClose",
		looks: []string{"core.TestRWMutex_whoWaitsForItsOwnHoldIsToldOfClose"},
	},
	{
		name: "etcd-tokens-of-shares-fall", lock: "etcd",
		what: "if the requests of the oldest shares took long, the token of a share was smaller than that of an earlier writer",
		fix:  "f846168", dir: "etcd", test: "TestSettle_tokensDoNotFallWhenTheOldestAreSlow",
	},
	{
		name: "zookeeper-release-deletes-anothers-share", lock: "ZooKeeper",
		what: "the release of a lost share deleted another share that had the same number",
		fix:  "1674ac1", dir: "zookeeper", test: "TestRelease_ofALostShareLeavesThatOfTheSameNumberAlone",
	},
	{
		name: "keyed-waiter-misses-close", lock: "keyed",
		what: "a waiter was not told when the Client was closed",
		fix:  "738b77b", dir: "keyed", test: "TestLock_endsWhenTheClientIsClosed",
	},
	{
		name: "zookeeper-unlock-in-a-silence-leaves-the-lock-taken", lock: "ZooKeeper", by: "a scenario of package recipes",
		what: "a lock that was unlocked while the servers were silent stayed taken for as long as its Client used the session",
		fix:  "02e9d8e", dir: "zookeeper", test: "TestSilence_untilAfterAnUnlockLeavesNothing",
	},
	{
		name: "redis-new-name-stops-a-slot-move", lock: "Redis",
		what: "in a Cluster, the first lock of a name wrote a second mark (the key that keeps tokens rising) while the slot of the name was moving; the mark on the target node stopped the move",
		fix:  "43cd1fb", dir: "redis", test: "TestCluster_aNewNameWhoseSlotMoves",
	},
	{
		name: "core-extension-nobody-heard-of", lock: "core",
		what: "if the outcome of an Extend was unknown, and the hold then expired for its holder, it was not released at the backend, and the lock stayed taken for a TTL more",
		fix:  "9256fd0", dir: ".", test: "TestExtend_abandonedByItsContextIsGivenBackAtTheDeadline",
		looks: []string{"core.TestExtend_abandonedByItsContextIsGivenBackAtTheDeadline"},
	},
	{
		name: "core-renewal-answered-too-late", lock: "core",
		what: "a renewal that was answered after the deadline left a lease behind that nobody released",
		fix:  "9256fd0", dir: ".", test: "TestRenewal_answeredAfterTheDeadlineIsGivenBack",
		looks: []string{"core.TestExtend_answeredAfterTheDeadlineIsGivenBack"},
	},
	{
		name: "core-renewal-without-a-pause", lock: "core", by: "counting requests",
		what: "if the backend counted the TTL of a hold from a time long before the request, the hold was renewed again and again, without a pause",
		fix:  "cc292d7", dir: ".", test: "TestRenewal_ofALeaseThatCountsFromEarlier",
		looks: []string{"core.TestRenewal_ofALeaseThatCountsFromEarlier"},
	},
	{
		name: "redis-clocks-of-a-cluster-shorten-holds", lock: "Redis",
		what: "holds were shorter by the difference between the clocks of a Cluster's nodes",
		fix:  "3ee7f77", dir: "internal/redisscript", test: "TestAcquire_nodesWhoseClocksDifferALittleShortenNoHold",
	},
	{
		name: "redlock-ballot-does-not-end", lock: "Redlock",
		what: "a Lock that had lowered the number of answers that it needed, and then got a refusal, never came to a decision",
		fix:  "be48ba4", dir: "redlock", test: "TestBallot_isDecidedThoughARefusalComesAfterTheGoalWasLowered",
	},
	{
		name: "redlock-node-days-off-blocks", lock: "Redlock",
		what: "if one node was down, another node whose clock was days off made the lock unavailable",
		fix:  "be48ba4", dir: "redlock", test: "TestTokens_aNodeWhoseClockIsDaysOffIsOutvotedThoughAnotherIsDown",
		looks: []string{"redlock.TestTokens_aNodeWhoseClockIsDaysOffIsOutvoted"},
	},
	{
		name: "redis-ring-two-holders", lock: "Redis",
		what: "a Ring promised exclusion, but two clients that reached different shards both held the lock",
		fix:  "dd06db5", dir: "redis", test: "TestRing_withAShardThatOneClientCannotReachTwoHold",
	},
	{
		name: "redis-late-take-holds-longer", lock: "Redis",
		what: "a take that arrived late held the lock for more than one TTL from when it was sent",
		fix:  "cf89635", dir: "redis", test: "TestLateTake_locksNobodyOutForLongerThanOneTTL",
		looks: []string{"a take that arrives more than a TTL late takes nothing", "redisscript.TestLate_whatArrivesTooLateGetsNothing"},
	},
	{
		name: "redlock-counts-more-than-its-nodes-have", lock: "Redlock",
		what: "a hold was believed to last for longer than it lasted on its nodes",
		fix:  "cf89635", dir: "redlock", test: "TestAcquire_countsNoMoreThanItsNodesHave",
		looks: []string{"a take that arrives late leaves nothing behind"},
	},
	{
		name: "redis-waiter-loses-its-place", lock: "Redis",
		what: "a waiter lost its place in the queue while its slot of a Cluster moved",
		fix:  "0c0ba25", dir: "internal/redisscript", test: "TestHub_aWaiterKeepsItsPlaceWhereTheServerKnowsNone",
	},
	{
		name: "zookeeper-old-server-is-taken", lock: "ZooKeeper",
		what: "servers before version 3.6, whose tokens may fall after a restart, were not refused",
		fix:  "bcdfe38", dir: "zookeeper", test: "TestVersion_thatIsTooOldIsRefused",
	},
	{
		name: "url-second-at-hides-a-host", lock: "core",
		what: "in a URL with two unescaped @, the code read the host between them as a part of the password",
		fix:  "7edc85c", dir: ".", test: "TestURL_refusesASecondAt",
		looks: []string{"driver.TestURL_refusesASecondAt"},
	},
	{
		name: "zookeeper-close-hangs", lock: "ZooKeeper",
		what: "Close did not end if a request was under way on a broken connection",
		fix:  "18490f1", dir: "zookeeper", test: "TestLink_whatIsAskedWhileTheLibraryClosesDoesNotKeepItForEver",
		looks: []string{"Unlock returns by the deadline though the server is silent"},
	},
	{
		name: "etcd-two-holders-on-3.7", lock: "etcd", by: "the suite",
		what: "two clients held a lock on etcd 3.7; if a request asks for keys alone, etcd 3.7 leaves out their leases, so a client did not see the holder",
		fix:  "7d01149", dir: "etcd", test: "TestQueue_isSeenWhereKeysComeWithoutTheirLeases",
		looks: []string{"a held lock is not granted to another process"},
	},
	{
		name: "redis-unlock-after-a-failover-says-nil", lock: "Redis",
		what: "an Unlock that was sent again returned nil for a hold that a failover had lost",
		fix:  "c1bc287", dir: "redis", test: "TestUnlock_ofAHoldThatAFailoverForgot_isErrLost",
		looks: []string{"an Unlock that is sent again never says nil if a failover forgot the hold", "redis.TestUnlock_ofAHoldThatAFailoverForgot_isErrLost"},
	},
	{
		name: "core-unlock-with-an-ended-context-waits", lock: "core",
		what: "an Unlock whose context had ended sent its release only after a pause",
		fix:  "7c3518a", dir: ".", test: "TestHeeder_unlockWithACtxThatHasEndedReleasesAtOnce",
		looks: []string{"core.TestUnlock_withAnEndedContextStillReleases"},
	},
	{
		name: "redis-first-unlock-after-a-failover-says-nil", lock: "Redis",
		what: "an Unlock returned nil for a hold that a failover had lost, if another had taken the lock since",
		fix:  "01d29d6", dir: "redis", test: "TestRelease_afterAFailoverThatForgotIsErrLost",
		looks: []string{"Unlock never says nil if a failover forgot the hold", "redis.TestUnlock_ofAHoldThatAFailoverForgot_isErrLost"},
	},
	{
		name: "core-lock-ends-the-next-hold", lock: "core", by: "a review",
		what: "if the goroutine of a Lock was paused until after the end of its hold, this Lock then ended the next hold of the same Mutex",
		fix:  "b51866f", dir: ".", test: "TestLock_whoseGoroutineStoppedPastItsHoldLeavesTheNextAlone",
		looks: []string{"core.TestHold_neverSpeaksForItsSuccessor"},
	},
	{
		name: "redis-new-panics", lock: "Redis",
		what: "New panicked if the client was not a pointer",
		fix:  "e94142c", dir: "redis", test: "TestNew_takesAClientThatIsNoPointer",
	},
	{
		name: "core-loss-beside-a-grant-panics", lock: "core",
		what: "if a loss was handled in the moment in which another goroutine was granted the lock, the code closed a nil channel and panicked",
		fix:  "c26c495", dir: ".", test: "TestLock_aLossThatIsDealtWithInTheMomentOfTheGrant",
		looks: []string{"core.TestLoss_inTheMomentOfTheGrantEndsTheWaitingOfOthers"},
	},
}
