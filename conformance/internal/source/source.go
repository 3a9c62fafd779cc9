// Package source lists the publications about locks, and the defects of libraries, that promises
// come from, for people who want to read on. Other promises are the contract of locker.Locker and
// locker.RWMutex.
package source

// The publications and the defects.
const (
	RedisDocs = "Redis documentation, SET: a lock is set with its TTL in one step, and deleted " +
		"by a script that compares the owner (redis.io/docs/latest/commands/set)"
	Kleppmann = "Martin Kleppmann, How to do distributed locking, 2016: a holder may be paused " +
		"past its TTL, and a request delayed, so that the resource has to check a token that " +
		"rises"
	Antirez = "Salvatore Sanfilippo, Is Redlock safe?, 2016: the time that a request took is " +
		"subtracted from the validity; Redlock depends on clocks, and on nodes that do not forget"
	Redlock = "Redis documentation, Distributed locks with Redis: a failover loses what was " +
		"not replicated, and a restart loses what was not on disk " +
		"(redis.io/docs/latest/develop/use/patterns/distributed-locks)"
	CallMe     = "Kyle Kingsbury, Call me maybe: Redis, 2013: a primary that fails loses writes that it had acknowledged"
	JepsenEtcd = "Jepsen, etcd 3.4.3, 2020: a process may have lost a lock, and believe that it " +
		"still holds it; only a check at the moment of each write helps"
	Chubby = "Mike Burrows, The Chubby lock service, 2006: its tokens (sequencers), its " +
		"delay before a lost lock is granted again, and what a client may still believe when it " +
		"hears nothing from the servers"
	ZkRecipe = "ZooKeeper documentation, Recipes, Locks: an ephemeral sequential node, a watch " +
		"on the predecessor alone, and no trace once the session is over"
	Herlihy   = "Maurice Herlihy and Jeannette Wing, Linearizability, 1990; Jepsen checks locks against such a model"
	GoContext = "Go, package context: a call returns soon after its ctx ends, and its error says so (ctx.Err, context.Cause)"
	Semaphore = "Go, golang.org/x/sync/semaphore: a grant that loses the race with the end of ctx is put back"

	RedsyncCancel  = "redsync 4.18: clean-up uses the caller's ctx, which has just been cancelled, and so leaves the key"
	RedsyncStopped = "redsync 4.18: a node that hangs makes Lock, Unlock and Extend hang for its client's time-out"
	RedsyncExtend  = "redsync 4.12.0: an Extend that one node does not answer releases the lock on all nodes, and the holder is not told"
	RedsyncReply   = "redsync 4.18: a reply is lost, the client tries again, and finds the lock taken by its own first request"
	RedislockReply = "redislock 0.10: after a lost reply Release reports that the lock was not held, although it has released it"
	RueidisOverrun = "rueidislock 1.0.79: an attempt that overruns its time is undone, but this " +
		"wakes nobody, and Lock waits for ever although the lock is free"
	RueidisErrors   = "rueidislock 1.0.79: during a wait, errors of the server are not returned"
	MutexSession    = "etcd's concurrency.Mutex: two of one session both hold the lock"
	MutexReply      = "etcd's concurrency.Mutex: after a lost reply its key stands in the queue, ahead of everyone, while the session lives"
	MutexUnlock     = "etcd's concurrency.Mutex: Unlock returns nil after the lease has ended"
	MutexRetry      = "etcd's concurrency.Mutex: an Unlock that is tried again can delete a newer hold"
	ZkContext       = "go-zookeeper's Lock takes no ctx, and an error after the create leaves its node in the queue until the session ends"
	ZkDeadlock      = "go-zookeeper's Lock: if its node has vanished, Unlock fails, and after that Lock always returns ErrDeadlock"
	ValkeyrieUnlock = "valkeyrie: Unlock hangs for ever after the goroutine of the holder has ended"
	RedissonRenewal = "Redisson: a renewal that went on after Unlock kept locks for ever"
	RedissonToken   = "Redisson: a holder that asks late for its token gets that of its successor"
	GoRWMutex       = "Go, sync.RWMutex: what people expect of RLock and Lock: a Lock that waits " +
		"keeps later RLocks out, and a share cannot become the lock"
	ZkShared = "ZooKeeper documentation, Recipes, Shared locks: a reader waits for the " +
		"writers before it in the queue, and a writer for all"
	Curator        = "Apache Curator, InterProcessReadWriteLock: a reader cannot become a writer, and a writer can become a reader"
	RedissonShares = "Redisson, RReadWriteLock: each share has a time-out of its own, and a release names its owner"
	SharedScripts  = "an earlier draft of this library: one script took several names; it ran " +
		"on the server to which a proxy routed the first name, and locked the other names there, " +
		"where nobody looks for them"
	UbgoToken = "ubgo/lock: SETNX, and INCR as a second command: a holder that stalls " +
		"between the two gets a larger token than its successor"
	OwnPrograms = "we judged locks of several authors in other languages: one of these locks broke the promise"
	FullServers = "MariaDB at max_connections: a client that makes a connection for its " +
		"first renewal, or for its release, loses its holds, or cannot end them"
	LostTables = "firewalls and NAT that have lost their table: connections are open, and " +
		"nothing arrives on them; a client that tries one after another fails each time, until " +
		"it has tried all"
	LongPauses = "etcd with users, whose tokens expire: after that the server refused each " +
		"new watch, nobody noticed, and waiters polled until the process ended"
	MostNews   = "most libraries do not tell a holder that its lock is lost"
	MostErrors = "in most libraries one and the same error stands for three cases: another " +
		"holds the lock, the lock is lost, the server is unreachable"
)
