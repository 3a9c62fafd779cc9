package breaks

const core = "internal/test/core"

// own are bugs of this module that were found since its first commit, the latest first: those whose
// test compiles without the mend.
var own = []ours{
	{
		name: "core-context-outlives-a-loss-that-is-noticed", lock: "core",
		what: "the context of a hold that was lost had not ended at the first look, if another goroutine had noticed the loss just then",
		by:   "a test that failed under load",
		fix:  "058702b", dir: core, test: "TestHoldContext_hasEndedThoughWhoNoticedIsStillTellingOthers",
	},
	{
		name: "etcd-try-that-left-is-granted", lock: "etcd",
		what: "a TryLock whose leaving was not answered was granted the lock by the place that it had left",
		fix:  "9ab923b", dir: "etcd", test: "TestAsk_ofATryThatIsToLeave",
	},
	{
		name: "zookeeper-try-that-left-is-granted", lock: "ZooKeeper",
		what: "a TryLock whose leaving was not answered was granted the lock by the place that it had left",
		fix:  "9ab923b", dir: "zookeeper", test: "TestAsk_ofATryThatIsToLeave",
	},
	{
		name: "postgres-try-after-a-lost-reply-is-held-up-by-itself", lock: "PostgreSQL",
		what: "a TryLock that asked again after a lost reply took the hold that it had been granted for another's",
		fix:  "06b7a2d", dir: "postgres", test: "TestAsk_afterATakeWhoseReplyWasLost",
	},
	{
		name: "core-try-on-a-broken-connection-fails", lock: "core",
		what: "a Lock or TryLock failed because the connection that the pool gave it had broken long before",
		fix:  "e04c1eb", dir: core, test: "TestLock_firstRequestThatFailsAtOnceIsMadeAgain",
	},
	{
		name: "postgres-lock-on-an-ended-connection-fails", lock: "PostgreSQL",
		what: "a Lock failed because the server had ended the connection that the pool gave it",
		fix:  "5b01096", dir: "postgres", test: "TestLock_onAConnectionThatTheServerHasEnded",
	},
	{
		name: "core-turn-is-lost", lock: "core",
		what: "of several goroutines that waited for one Mutex, the next one missed its turn when the holder unlocked just as it came, and waited on",
		fix:  "17e782f", dir: core, test: "TestMutex_aTurnIsNotLost",
	},
	{
		name: "redlock-clocks-too-far-apart-say-held", lock: "Redlock",
		what: "where the clocks of the nodes were more than 12 hours apart Lock said that another had the lock",
		fix:  "357df6e", dir: "redlock", test: "TestTokens_ofClocksTooFarApartAreNoOtherHolder",
	},
	{
		name: "redis-reader-overtakes-a-writer", lock: "Redis",
		what: "a reader overtook a waiting writer that had stood still once and had come back",
		fix:  "5efbf2e", dir: "internal/redisscript", test: "TestShare_aWriterThatStoodStillOnceIsNotOvertakenLater",
	},
	{
		name: "zookeeper-second-unlock-says-nil", lock: "ZooKeeper",
		what: "an Unlock that was sent again after many shares were ended by force said nil of a hold that was lost",
		fix:  "0aa3ad6", dir: "zookeeper", test: "TestForceRelease_ofManySharesBeforeReleasesThatAreSentAgain",
	},
	{
		name: "redis-silent-connections-keep-requests", lock: "Redis",
		what: "two connections that went silent kept all requests of a short Lock from being sent",
		fix:  "95b63d6", dir: "redis", test: "TestSilentConnections_keepNoShortLockFromBeingSent",
	},
	{
		name: "core-close-beside-a-function", lock: "core", by: "measuring",
		what: "Close released a lock while the function of Do was still returning, which ran beside the next holder",
		fix:  "14daa70", dir: core, test: "TestClose_waitsForWhatRunsUnderAHold",
	},
	{
		name: "redis-share-without-a-right-ends-others", lock: "Redis",
		what: "a reader that lacked a right ended the shares of others",
		fix:  "3dde61f", dir: "internal/redisscript", test: "TestShare_whoLacksARightEndsNoOther",
	},
	{
		name: "redis-tokens-of-shares-fall", lock: "Redis",
		what: "the tokens of shares did not rise when the server forgot a writer",
		fix:  "3dde61f", dir: "internal/redisscript", test: "TestShare_tokensRiseThoughTheServerForgetsAWriter",
		looks: []string{"tokens rise from a writer to a share though the server that knows least takes over", "redisscript.TestShare_tokensRiseThoughTheServerForgetsAWriter"},
	},
	{
		name: "redis-writer-that-never-looks-blocks", lock: "Redis",
		what: "a writer that never looked again kept readers waiting",
		fix:  "3dde61f", dir: "internal/redisscript", test: "TestShare_aWriterThatNeverLooksIsPassedOver",
	},
	{
		name: "core-readers-of-one-mutex-all-ask", lock: "core",
		what: "each goroutine that waited for a share of its own RWMutex asked the backend",
		fix:  "bedcbae", dir: ".", test: "TestRWMutex_manyGoroutinesAskTheBackendOnceEach",
		looks: []string{"core.TestRWMutex_manyGoroutinesAskTheBackendOnceEach"},
	},
	{
		name: "core-reader-misses-close", lock: "core",
		what: "a goroutine that waited for the share of another on its RWMutex was not told of Close",
		fix:  "bedcbae", dir: ".", test: "TestRWMutex_whoWaitsForItsOwnHoldIsToldOfClose",
		looks: []string{"core.TestRWMutex_whoWaitsForItsOwnHoldIsToldOfClose"},
	},
	{
		name: "etcd-tokens-of-shares-fall", lock: "etcd",
		what: "the token of a share was smaller than that of a writer before it, when the oldest shares were slow",
		fix:  "f846168", dir: "etcd", test: "TestSettle_tokensDoNotFallWhenTheOldestAreSlow",
	},
	{
		name: "zookeeper-release-deletes-anothers-share", lock: "ZooKeeper",
		what: "the release of a lost share deleted the share of another that had the same number",
		fix:  "1674ac1", dir: "zookeeper", test: "TestRelease_ofALostShareLeavesThatOfTheSameNumberAlone",
	},
	{
		name: "keyed-waiter-misses-close", lock: "keyed",
		what: "a waiter was not told when the Client was closed",
		fix:  "738b77b", dir: "keyed", test: "TestLock_endsWhenTheClientIsClosed",
	},
	{
		name: "zookeeper-unlock-in-a-silence-leaves-the-lock-taken", lock: "ZooKeeper", by: "the suite",
		what: "a lock that was unlocked while the servers were silent stayed taken for as long as its Client used the session",
		fix:  "02e9d8e", dir: "zookeeper", test: "TestSilence_untilAfterAnUnlockLeavesNothing",
	},
	{
		name: "redis-new-name-stops-a-slot-move", lock: "Redis",
		what: "in a Cluster a name that was new made a second mark where its slot moved to, which stopped the move",
		fix:  "43cd1fb", dir: "redis", test: "TestCluster_aNewNameWhoseSlotMoves",
	},
	{
		name: "core-extension-nobody-heard-of", lock: "core",
		what: "a hold that expired after an Extend whose outcome nobody heard was not released, and its lock stayed taken for a TTL",
		fix:  "9256fd0", dir: ".", test: "TestExtend_abandonedByItsContextIsGivenBackAtTheDeadline",
		looks: []string{"core.TestExtend_abandonedByItsContextIsGivenBackAtTheDeadline"},
	},
	{
		name: "core-renewal-answered-too-late", lock: "core",
		what: "a renewal that was answered after the deadline left a lease behind, which nobody held and nobody released",
		fix:  "9256fd0", dir: ".", test: "TestRenewal_answeredAfterTheDeadlineIsGivenBack",
		looks: []string{"core.TestExtend_answeredAfterTheDeadlineIsGivenBack"},
	},
	{
		name: "core-renewal-without-a-pause", lock: "core", by: "counting requests",
		what: "a hold that counts from earlier than its request was due for renewal at once, again and again",
		fix:  "cc292d7", dir: ".", test: "TestRenewal_ofALeaseThatCountsFromEarlier",
		looks: []string{"core.TestRenewal_ofALeaseThatCountsFromEarlier"},
	},
	{
		name: "redis-clocks-of-a-cluster-shorten-holds", lock: "Redis",
		what: "a hold was shortened by the difference between the clocks of a Cluster's nodes",
		fix:  "3ee7f77", dir: "internal/redisscript", test: "TestAcquire_nodesWhoseClocksDifferALittleShortenNoHold",
	},
	{
		name: "redlock-ballot-does-not-end", lock: "Redlock",
		what: "a ballot did not end when a refusal came after its goal was lowered",
		fix:  "be48ba4", dir: "redlock", test: "TestBallot_isDecidedThoughARefusalComesAfterTheGoalWasLowered",
	},
	{
		name: "redlock-node-days-off-blocks", lock: "Redlock",
		what: "a node whose clock was days off kept all others from the lock when another node was down",
		fix:  "be48ba4", dir: "redlock", test: "TestTokens_aNodeWhoseClockIsDaysOffIsOutvotedThoughAnotherIsDown",
		looks: []string{"redlock.TestTokens_aNodeWhoseClockIsDaysOffIsOutvoted"},
	},
	{
		name: "redis-ring-two-holders", lock: "Redis",
		what: "a Ring promised exclusion, and two clients that reached different shards both held",
		fix:  "dd06db5", dir: "redis", test: "TestRing_withAShardThatOneClientCannotReachTwoHold",
	},
	{
		name: "redis-late-take-holds-longer", lock: "Redis",
		what: "a take that arrived late kept others out for more than one TTL from when it was sent",
		fix:  "cf89635", dir: "redis", test: "TestLateTake_locksNobodyOutForLongerThanOneTTL",
		looks: []string{"a take that arrives more than a TTL late takes nothing", "redisscript.TestLate_whatArrivesTooLateGetsNothing"},
	},
	{
		name: "redlock-counts-more-than-its-nodes-have", lock: "Redlock",
		what: "a hold counted more time than its nodes had left",
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
		what: "a server before version 3.6, whose restart may set tokens back, was not refused",
		fix:  "bcdfe38", dir: "zookeeper", test: "TestVersion_thatIsTooOldIsRefused",
	},
	{
		name: "url-second-at-hides-a-host", lock: "core",
		what: "a host after a raw @ in a URL's password was taken for a part of the password",
		fix:  "7edc85c", dir: ".", test: "TestURL_refusesASecondAt",
		looks: []string{"driver.TestURL_refusesASecondAt"},
	},
	{
		name: "zookeeper-close-hangs", lock: "ZooKeeper",
		what: "a Close that met a request on a broken connection did not end",
		fix:  "18490f1", dir: "zookeeper", test: "TestLink_whatIsAskedWhileTheLibraryClosesDoesNotKeepItForEver",
		looks: []string{"Unlock returns by the deadline though the server is silent"},
	},
	{
		name: "etcd-two-holders-on-3.7", lock: "etcd", by: "the suite",
		what: "on etcd 3.7 nobody saw that there was a holder, because its answers with keys alone have no leases",
		fix:  "7d01149", dir: "etcd", test: "TestQueue_isSeenWhereKeysComeWithoutTheirLeases",
		looks: []string{"a held lock is not granted to another process"},
	},
	{
		name: "redis-unlock-after-a-failover-says-nil", lock: "Redis",
		what: "an Unlock that was sent again said nil of a hold that a failover had forgotten",
		fix:  "c1bc287", dir: "redis", test: "TestUnlock_ofAHoldThatAFailoverForgot_isErrLost",
		looks: []string{"an Unlock that is sent again of a hold that a failover forgot never says nil", "redis.TestUnlock_ofAHoldThatAFailoverForgot_isErrLost"},
	},
	{
		name: "core-unlock-with-an-ended-context-waits", lock: "core",
		what: "an Unlock whose context had ended sent its release only after a pause",
		fix:  "7c3518a", dir: ".", test: "TestHeeder_unlockWithACtxThatHasEndedReleasesAtOnce",
		looks: []string{"core.TestUnlock_withAnEndedContextStillReleases"},
	},
	{
		name: "redis-first-unlock-after-a-failover-says-nil", lock: "Redis",
		what: "an Unlock of a hold that a failover had forgotten said nil when another had taken the lock",
		fix:  "01d29d6", dir: "redis", test: "TestRelease_afterAFailoverThatForgotIsErrLost",
		looks: []string{"Unlock of a hold that a failover forgot never says nil", "redis.TestUnlock_ofAHoldThatAFailoverForgot_isErrLost"},
	},
	{
		name: "core-lock-ends-the-next-hold", lock: "core", by: "a review",
		what: "a Lock whose goroutine stopped past its own hold ended the hold that came after it on the same Mutex",
		fix:  "b51866f", dir: ".", test: "TestLock_whoseGoroutineStoppedPastItsHoldLeavesTheNextAlone",
		looks: []string{"core.TestHold_neverSpeaksForItsSuccessor"},
	},
	{
		name: "redis-new-panics", lock: "Redis",
		what: "New panicked on a client that is no pointer",
		fix:  "e94142c", dir: "redis", test: "TestNew_takesAClientThatIsNoPointer",
	},
	{
		name: "core-loss-beside-a-grant-panics", lock: "core",
		what: "a loss that was dealt with while another goroutine was granted the lock closed a nil channel",
		fix:  "c26c495", dir: ".", test: "TestLock_aLossThatIsDealtWithInTheMomentOfTheGrant",
		looks: []string{"core.TestLoss_inTheMomentOfTheGrantEndsTheWaitingOfOthers"},
	},
}
