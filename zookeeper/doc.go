// Package zookeeper keeps locks on Apache ZooKeeper, through go-zookeeper/zk. It registers
// zookeeper:// and, for TLS, zookeepers://.
//
//	client, err := locker.Open(ctx, "zookeeper://user:password@host1:2181,host2:2181,host3:2181/apps/shop?ttl=20s")
//
// [New] takes servers in place of a URL. How to run them, and which rights a user needs:
// https://github.com/go-locker/locker/blob/main/docs/backends/zookeeper.md. All parameters of the
// URL: https://github.com/go-locker/locker/blob/main/docs/urls.md. How the lock works:
// docs/evidence/protocols.md there.
//
// The servers have to be of version 3.6 or later: after the restart of an older one tokens may
// fall. Each connection asks its server for the version, by the command srvr, unless the servers'
// 4lw.commands.whitelist forbids it. If a server is older, the first Lock returns
// [driver.ErrUnsupported].
//
// # The URL
//
//	zookeeper[s]://[user:password@][host[:port]][,host[:port]…][/path][?parameter=value&…]
//
// The hosts are servers of one ensemble; the default is localhost. The default port is 2181, and
// with TLS 2281, the servers' secureClientPort. All nodes are made below the path, which is made if
// it is missing. User and password are for ZooKeeper's authentication scheme "digest".
//
// # The TTL
//
// The TTL is the time-out of a ZooKeeper session, which the servers must grant: by default 2 to 20
// of their ticks, 4 s to 40 s. One that they do not grant is [driver.ErrUnsupported] when it is
// first used, and the error says what they grant. If no TTL is chosen, Open and New ask the servers
// for 30 s, and use the TTL that the servers grant, or 30 s if no server answers within the dial
// time-out. If a TTL is chosen, Open and New make no request.
//
// Each TTL of a Client has a session and a connection of its own, made at first use, and closed
// when it was not used for a minute, or for the TTL if that is longer. All holds on a session are
// lost together if it ends. If the process of a hold stops, the servers remove the hold one TTL
// after the last contact, and at most a tick later than that. If the leader changed, it may be up
// to one TTL later.
//
// A session's sign of life reaches the leader with a delay, which depends on the servers' tick. The
// Driver has to know the longest delay. It assumes a tick of a quarter of the TTL, at most 30 s.
// The leader asks its followers twice in a tick, so the delay is half a real tick, and a real tick
// of up to twice the assumed one is safe. Give the real tick, by the parameter tick or by [Tick],
// if the servers' tickTime is above a minute, or their minSessionTimeout is below two ticks. If you
// give a tick, never give one that is shorter than the servers' tickTime: it would make the locks
// unsafe.
//
// # What it is worth
//
// ZooKeeper promises one holder, rising tokens and waiters in order, also if a minority of the
// servers is lost. While there is no majority nothing can be taken, extended or released: waiters
// get an error after half a TTL, and holds expire. After a restore from a backup, or if you begin
// with empty servers, use [locker.WithTokenBase]. After two billion Locks of one name, Lock fails
// until its queue is empty and the servers have removed its node.
//
// [locker.Client.Inspect] cannot tell how long the holder's session lasts. When others have come or
// gone, it cannot tell the holder's token either.
package zookeeper
