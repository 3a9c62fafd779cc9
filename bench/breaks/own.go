package breaks

const core = "internal/test/core"

// own are bugs of this module that were found since its first commit, the latest first: those whose test compiles without the mend.
var own = []ours{
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
		name: "core-close-beside-a-function", lock: "core", by: "measuring",
		what: "Close released a lock while the function of Do was still returning, which ran beside the next holder",
		fix:  "14daa70", dir: core, test: "TestClose_waitsForWhatRunsUnderAHold",
	},
	{
		name: "core-renewal-without-a-pause", lock: "core", by: "counting requests",
		what: "a hold that counts from earlier than its request was due for renewal at once, again and again",
		fix:  "cc292d7", dir: ".", test: "TestRenewal_ofALeaseThatCountsFromEarlier", looks: []string{"core.TestRenewal_ofALeaseThatCountsFromEarlier"},
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
		name: "core-unlock-with-an-ended-context-waits", lock: "core",
		what: "an Unlock whose context had ended sent its release only after a pause",
		fix:  "7c3518a", dir: ".", test: "TestHeeder_unlockWithACtxThatHasEndedReleasesAtOnce", looks: []string{"core.TestUnlock_withAnEndedContextStillReleases"},
	},
	{
		name: "core-lock-ends-the-next-hold", lock: "core", by: "a review",
		what: "a Lock whose goroutine stopped past its own hold ended the hold that came after it on the same Mutex",
		fix:  "b51866f", dir: ".", test: "TestLock_whoseGoroutineStoppedPastItsHoldLeavesTheNextAlone", looks: []string{"core.TestHold_neverSpeaksForItsSuccessor"},
	},
	{
		name: "core-loss-beside-a-grant-panics", lock: "core",
		what: "a loss that was dealt with while another goroutine was granted the lock closed a nil channel",
		fix:  "c26c495", dir: ".", test: "TestLock_aLossThatIsDealtWithInTheMomentOfTheGrant", looks: []string{"core.TestLoss_inTheMomentOfTheGrantEndsTheWaitingOfOthers"},
	},
}
