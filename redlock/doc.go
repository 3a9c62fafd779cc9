// Package redlock keeps locks on a majority of independent Redis nodes, by the algorithm called
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
// or by URL, with the package of the nodes' driver imported, too:
//
//	client, err := locker.Open(ctx, "redlock://user:password@h1:6379,h2:6379,h3:6379/0?ttl=10s")
//
// The nodes are Drivers of package redis or redigo, which may be mixed. There must be at least
// three. An even number tolerates no more failures than the odd one below it. They must not
// replicate to each other, and no two of them may be one server. Before its first lock a Client
// asks each node for its identity, and refuses the lock if two nodes are one server, as far as the
// servers tell. All clients have to use the same set of nodes, and it must not change while they
// run.
//
// How to run the servers: https://github.com/go-locker/locker/blob/main/docs/backends/redlock.md.
// Why tokens rise, and the arguments for and against Redlock: docs/evidence/redlock-tokens.md
// there; how the lock works: docs/evidence/protocols.md.
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
// and those of the driver, which go to each node, as user, password and database do.
//
// # What it is worth
//
// Redlock promises one holder and rising tokens, also while a minority of the nodes is down, hangs
// or is slow. The conditions: clocks run at about the same speed, and nodes keep their data. If a
// node restarts empty, there may be two holders. To prevent that, let Redis write its append-only
// file with fsync at every write, or keep such a node out of service for one TTL, the longest in
// use. To keep the order of tokens, keep the node out of service for 12 hours and a TTL. Tokens are
// made from clocks, and a token that the node has lost may be up to 12 hours ahead of the node's
// clock. A node also forgets the token of a name in normal operation: it deletes the name a minute
// after its TTL. Tokens still rise, even if clocks jump; docs/evidence/redlock-tokens.md has the
// one exception. A node must not evict keys. Waiters queue on every node, in the same order, and a
// release wakes the first; after a fault the order may change. TryLock may return ErrHeld although
// nobody holds the lock: if several callers got some nodes each and none a majority, or if a node
// has not heard of a release yet.
//
// Without a majority, Lock returns an error that wraps an [Error] with the [Vote] of each node.
package redlock
