package main

import (
	"fmt"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
)

// knownBreak is a way in which a third-party lock broke, and what looks for it here.
type knownBreak struct {
	library, what string
	scenarios     []string
	tests         []string // by package
}

// knownBreaks lists them, from the libraries' issues and from what was measured of them.
var knownBreaks = []knownBreak{
	{
		"redsync", "With one node of three stopped, Lock and Unlock take as long as the client's time-outs.",
		[]string{"Unlock returns by the deadline though the server is silent"},
		[]string{"redlock.TestAcquire_isDecidedByAMajority"},
	},
	{
		"redsync", "The stopped node later applies the late SET, and keeps the key.",
		[]string{"a take that arrives late leaves nothing behind", "a Lock that ended while the server was silent leaves nothing behind"},
		[]string{"redlock.TestMinority_thatWakesKeepsNoKey", "redisscript.TestLate_whatArrivesTooLateGetsNothing"},
	},
	{
		"redsync", "Clean-up runs on the ctx that was just cancelled: one cancel in five leaves a key.",
		[]string{"a Lock cancelled at any moment leaves nothing behind", "many Locks cancelled at once leave nothing behind"},
		[]string{"redigo.TestCancel_atAnyMoment"},
	},
	{
		"redsync", "When ctx ends the error does not say so.",
		[]string{"the error of an interrupted Lock matches ctx.Err and its cause"},
		nil,
	},
	{
		"redsync", "One lost reply and the client's own retry: the lock is taken, by ourselves.",
		[]string{"a Lock whose replies are lost for a while is not held up by itself"},
		nil,
	},
	{
		"redsync", "Each failed attempt sends a release to every node.", nil,
		[]string{"redlock.TestFaults_releasesAreFew", "redlock.TestAcquire_ofALockThatAllDenyTakesNothing"},
	},
	{
		"redislock", "After a lost reply Release says that nothing was held, although it has released.",
		[]string{"a release that is sent again says nil or ErrLost, and frees the lock"},
		nil,
	},
	{
		"redislock", "Waiters poll in lockstep.", nil,
		[]string{"redisscript.TestQueueScripts_aHandOverCostsTheSameHoweverManyWait", "core.TestLock_pausesBetweenAttemptsAsTheBackoffSays"},
	},
	{
		"redislock", "The default is not to wait at all.",
		[]string{"a waiter wakes when the holder unlocks"},
		nil,
	},
	{
		"rueidislock", "One idle held lock costs thousands of scripts a second.", nil,
		[]string{"redis.TestCounts_allDueRenewalsOfAClientAreOnePipeline", "core.TestRenewal_everyThirdOfTheTTL"},
	},
	{
		"rueidislock", "Every release wakes every process.", nil,
		[]string{"redisscript.TestQueueScripts_aHandOverCostsTheSameHoweverManyWait", "redis.TestQueue_idleWaitersCostOneLookASecond"},
	},
	{
		"rueidislock", "Errors of the server are swallowed while it waits.",
		[]string{"an outage is an error or a wait, never ErrHeld", "a waiter whose connections were broken is served, or told"},
		[]string{"core.TestLock_waiterDoesNotRideOutALongOutage"},
	},
	{
		"rueidislock", "An attempt that overruns its time leaves its key, and Lock then waits for ever.",
		[]string{"a take whose reply was lost leaves nothing behind", "on a slow link Lock succeeds only with half its TTL left"},
		[]string{"core.TestLock_withLessThanHalfATTLLeftIsGivenBack"},
	},
	{
		"concurrency.Mutex", "A lost reply leaves our key in the queue, ahead of everyone, while the session lives.",
		[]string{"a take whose reply was lost leaves nothing behind"},
		[]string{"etcd.TestTakeAfterItsRelease"},
	},
	{
		"concurrency.Mutex", "Two of one session both hold.",
		[]string{"a held lock is not granted to the same client", "many Lockers of one client exclude one another"},
		nil,
	},
	{
		"concurrency.Mutex", "An Unlock that is tried again can delete a newer hold.",
		[]string{"a second Unlock leaves the next hold alone", "an Unlock that arrives late leaves the new hold alone"},
		nil,
	},
	{
		"concurrency.Mutex", "Unlock after the lease is gone says nil.",
		[]string{"a hold that was ended behind its holder's back is lost", "Unlock of a hold that expired says ErrLost"},
		[]string{"etcd.TestSession_revokedUnderTheHolder"},
	},
	{
		"zk.Lock", "It takes no ctx.",
		[]string{"Lock returns soon after ctx is cancelled while it waits"},
		nil,
	},
	{
		"zk.Lock", "An error after the create leaves the node in the queue until the session ends.",
		[]string{"a take whose reply was lost leaves nothing behind"},
		nil,
	},
	{
		"zk.Lock", "If its node has vanished Unlock fails, and the object says ErrDeadlock for ever after.",
		[]string{"a hold that was ended behind its holder's back is lost", "a Locker can be locked again after a loss and its Unlock"},
		[]string{"zookeeper.TestNode_removedUnderTheHolder"},
	},
	{
		"zk.Lock", "One foreign child breaks everybody's Lock.", nil,
		[]string{"zookeeper.TestForeignNodes_doNoHarm", "etcd.TestForeignKeys_doNoHarm"},
	},
	{
		"valkeyrie", "Unlock hangs for ever once the holder's goroutine has gone.",
		[]string{"Unlock of a hold that expired says ErrLost", "Unlock returns by the deadline though the server is silent"},
		nil,
	},
	{
		"valkeyrie", "A TTL below a second is renewed to no expiry at all.",
		[]string{"Extend keeps a hold past its TTL", "a hold expires after its TTL", "renewal ends with Unlock"},
		nil,
	},
	{
		"Redisson", "A renewal that outlives Unlock makes locks immortal.",
		[]string{"renewal ends with Unlock", "a renewed hold that expired at a silent server stays lost"},
		nil,
	},
	{
		"Redisson", "Token counters are never removed.", nil,
		[]string{"redis.TestStorage_isBoundedAfterManyNames", "redis.TestStorage_theHashExpiresAMinuteAfterTheLock"},
	},
	{
		"Redisson", "A stale holder that asks for its token reads its successor's.",
		[]string{"the token is 0 after a loss", "a process that was stopped past its TTL knows when it wakes"},
		[]string{"core.TestHold_neverSpeaksForItsSuccessor"},
	},
	{
		"ubgo/lock", "SETNX, then INCR as a second command: a holder that stalls gets a larger token than its successor.",
		[]string{"tokens rise in the order of the holds, with many contending"},
		[]string{"redis.TestCounts_eachOperationIsOneScriptInOneRoundTrip"},
	},
	{
		"most", "No news of a lost lock.",
		[]string{"Lost fires no later than Deadline", "Lost fires in time though the server is silent"},
		nil,
	},
	{
		"most", "One error for held by another, lost, and server unreachable.",
		[]string{"an outage is an error or a wait, never ErrHeld", "Unlock after a take-over says ErrLost", "TryLock of a held lock says ErrHeld"},
		nil,
	},
}

// breaksPage lists the known breaks.
func breaksPage() string {
	t := newTable("library", "what broke", "scenarios", "tests")
	for _, l := range knownBreaks {
		var scenarios []string
		for _, name := range l.scenarios {
			scenarios = append(scenarios, link("", name))
		}
		t.AppendRow(table.Row{l.library, l.what, strings.Join(scenarios, "; "), strings.Join(l.tests, ", ")})
	}
	return fmt.Sprintf("%s# What has broken elsewhere, and what looks for it here\n\n"+
		"Breaks of other locks that are known from their issues, or were measured. The scenarios are those of the [conformance suite](../conformance.md); the tests are "+
		"our packages'.\n\n%s\n", generated, t.RenderMarkdown())
}
