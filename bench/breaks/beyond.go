package breaks

// beyond tells of breaks that the suite cannot look for, because a Locker has no such method, or a
// Harness no such fault: what would be needed.
var beyond = map[string]string{
	"core-context-outlives-a-loss-that-is-noticed": "Hold.Context",
	"core-close-beside-a-function":                 "Client.Close and Do",
	"core-readers-of-one-mutex-all-ask":            "a count of requests",
	"core-reader-misses-close":                     "Client.Close",
	"core-renewal-without-a-pause":                 "a count of requests",
	"core-extension-nobody-heard-of":               "a sentence in the contract about when a lock is free after an Extend or a renewal with an unknown outcome",
	"core-renewal-answered-too-late":               "a sentence in the contract about when a lock is free after an Extend or a renewal with an unknown outcome",
	"keyed-waiter-misses-close":                    "Client.Close",
	"redis-share-without-a-right-ends-others":      "a user who lacks a right",
	"redis-new-name-stops-a-slot-move":             "a slot that moves",
	"redis-waiter-loses-its-place":                 "a slot that moves",
	"redis-clocks-of-a-cluster-shorten-holds":      "nodes with different clocks",
	"redlock-clocks-too-far-apart-say-held":        "nodes with different clocks",
	"redlock-node-days-off-blocks":                 "nodes with different clocks",
	"redlock-ballot-does-not-end":                  "nodes with different clocks",
	"redis-ring-two-holders":                       "a Ring of servers, on which the suite is not run",
	"redis-new-panics":                             "a value in place of a pointer",
	"zookeeper-old-server-is-taken":                "an old server",
	"zookeeper-second-unlock-says-nil":             "many holds that an operator ends",
	"url-second-at-hides-a-host":                   "URLs",
	"rueidislock@v1.0.43":                          "a count of requests",
	"rueidislock@v1.0.18":                          "a count of requests",
}

// Beyond returns what it would take to look for a break, or "" if the contract of a Locker covers
// it, and a Harness can have what it takes.
func Beyond(name string) string { return beyond[name] }

const (
	firstUnlock  = "Unlock never says nil if a failover forgot the hold"
	secondUnlock = "an Unlock that is sent again never says nil if a failover forgot the hold"
)

// since names scenarios that were made because the suite had not found a break, and what is made
// of them for readers. They find it, but not blind.
var since = map[string][]string{
	"redis-tokens-of-shares-fall":                  {"tokens rise from a writer to a share though the server that lags most takes over"},
	"redis-late-take-holds-longer":                 {"a take that arrives more than a TTL late takes nothing", "a request for a share that arrives more than a TTL late takes nothing"},
	"redis-unlock-after-a-failover-says-nil":       {secondUnlock, firstUnlock},
	"redis-first-unlock-after-a-failover-says-nil": {firstUnlock, secondUnlock},
	"redis-writer-that-never-looks-blocks":         {"a writer that is stopped while it waits does not hold up the readers behind it"},
	"redsync@v4.12.0":                              {"a hold goes on, or its loss is told, when one server does not answer an Extend"},
	"concurrency.Mutex@v3.4.3":                     {"a waiter that was cut off for longer than its TTL does not get the lock of another"},
}

// Since returns the scenarios that were made because the suite had not found a break.
func Since(name string) []string { return since[name] }
