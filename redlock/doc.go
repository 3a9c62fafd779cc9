// Package redlock keeps locks on a majority of independent Redis nodes, by the algorithm that is called
// Redlock, with fencing tokens that rise.
//
//	var nodes []driver.Driver
//	for _, rdb := range clients { // of go-redis, say; one for each server
//		node, err := redis.NewDriver(rdb)
//		…
//		nodes = append(nodes, node)
//	}
//	client, err := redlock.New(nodes)
//
// or, with the package of the nodes' driver imported beside this one, by URL:
//
//	client, err := locker.Open(ctx, "redlock://user:password@h1:6379,h2:6379,h3:6379/0?ttl=10s")
//
// The nodes are Drivers of the redis and the redigo package, which may be mixed; any [driver.Proposer] will do.
// There must be at least three. An even number tolerates no more failures than the odd one below it. The servers
// must not replicate to each other.
//
// # The URL
//
//	redlock://[[user]:password@]host[:port],host[:port],host[:port][,…][/database][?parameter=value&…]
//
// Beside the parameters that every backend has, see [locker.Open], it takes
//
//	driver         the scheme by which each node is opened: redis (the default), rediss, redigo, redigos
//	node_timeout   as NodeTimeout
//
// and those of the driver, which go to each node, as user, password and database do. The program imports
// the package of the driver, and so compiles no other client library.
//
// # The algorithm
//
// It is that of the Redis documentation, "Distributed Locks with Redis":
//
//   - An attempt asks all nodes at once for the lock, under an owner that no other attempt has. Each request has a
//     time-out far below the TTL, see [NodeTimeout].
//   - It has the lock if a majority has granted it. The lock then lasts one TTL from before the first
//     request, less an allowance for drift.
//   - An attempt that fails gives back what it has, at every node, also at those that have not answered yet. Waiters
//     pause for a random time, so that a split vote is not repeated for ever. TryLock may return ErrHeld when nobody has
//     the lock: votes were split, or a node has yet to hear of a release.
//   - Extend asks all nodes, and needs a majority before the lock has expired. Nodes that do not have the lock are
//     asked to take it in the same round, those that came back empty right after it.
//
// [Driver.Inspect] asks all nodes, too, and returns what a majority says.
//
// Every outcome is known as soon as enough nodes have answered: a minority that is dead, hangs, is slow or
// refuses to write delays nothing. A node that has not answered for a while is asked by one request at a time.
//
// There is one exception. A node that grants the lock after a majority has, or that joins later, does not show
// that nobody else had the lock before. It counts in full from the next Extend that succeeds. Until then an Extend or
// Unlock that has to count it waits for the others, for their time-out at most. A node that does not answer is assumed
// to have the lock still. If too many of the others have lost it, the hold is lost. So one of three nodes that restarts
// empty before the first Extend after a Lock may end the hold. After that it does not.
//
// # Tokens
//
// The documentation's algorithm has none. Here an attempt proposes a token, the clock in microseconds. A node
// accepts it in the step in which it grants the lock, and only if it is larger than any that it has accepted; else it
// grants the lock under a larger one. Where the answers differ, the nodes are raised to the largest, once, in a step
// that fails if the lock is no longer the attempt's. Only nodes that have the lock and the same token count towards
// the majority. Why tokens then rise, whatever clocks say, is in docs/redlock-tokens.md. All clients have to use the
// same set of nodes, and it must not change while they run.
//
// Nodes remember tokens for a day, and accept none that is more than 12 hours ahead of their clock. A client whose clock
// is wrong by more gets the lock under the clocks of the nodes. A node whose clock is that far from the others' is outvoted.
//
// # What it is worth
//
// One holder at a time, and tokens that rise, while clocks run at about the same speed and nodes remember. Martin
// Kleppmann, "How to do distributed locking" (2016), and Salvatore Sanfilippo's answer, "Is Redlock safe?" (2016),
// dispute that; each claim of the two is a test on five servers, named after it, in this package's claims_…_test.go. A
// clock that jumps makes two holders. A holder that is paused past the TTL is what the fencing token is for: the
// resource must refuse the smaller one.
//
// A node that restarts empty has forgotten who holds and which token came last. If that makes a second majority
// within one TTL, two may hold, and their tokens may be in the wrong order. Let Redis write its append-only file with
// fsync at every write, or keep a node that lost its data out of service: for the longest TTL in use, to have one
// holder at a time; for 12 hours more, to be sure of the order of tokens.
package redlock
