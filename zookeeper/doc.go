// Package zookeeper keeps locks on Apache ZooKeeper, through go-zookeeper/zk. It registers zookeeper:// and,
// for TLS, zookeepers://.
//
//	client, err := locker.Open(ctx, "zookeeper://user:password@host1:2181,host2:2181,host3:2181/apps/shop?ttl=20s")
//
// or, with a connection of the application's own, [New]. The servers have to be of version 3.6 or later: after the restart of an
// older one tokens may fall. Open's connections ask for the version, by the word srvr, which servers answer unless their
// 4lw.commands.whitelist forbids it; an older one is [driver.ErrUnsupported] when a lock is first taken. New does not ask.
//
// # The URL
//
//	zookeeper[s]://[user:password@][host[:port]][,host[:port]…][/path][?parameter=value&…]
//
// names servers of one ensemble. The port is 2181, and with TLS 2281, their secureClientPort; the host is localhost if there is
// none. All nodes are made below the path, which is made if it is missing. The user is one of the scheme digest.
// Beside the parameters that every backend has, see [locker.Open], it takes
//
//	tick                         the tickTime that the servers are configured with, if it is known; see below
//	dial_timeout                 a duration; the default is 5s
//	acl                          world: everybody may do everything with the nodes, as without a user;
//	                             creator: only who made them, as with one
//	tls_ca, tls_cert, tls_key    PEM files; with zookeepers:// alone
//	tls_server_name              if the certificates are for another name than the host's
//	tls_skip_verify              true: any certificate will do, also that of an intruder
//
// # The TTL
//
// The TTL is the time-out of a ZooKeeper session, which the servers must grant: by default they grant from
// two to twenty of their ticks, 4s to 40s. Another one is [driver.ErrUnsupported] when it is first used, and
// the error says what they grant. If no TTL is chosen, Open asks the servers for 30s and takes what it gets, or 30s if nobody
// answers within the dial time-out. Else Open makes no request. Each TTL of a Client has a session and a
// connection of its own. Both are made when they are first used, and closed when unused for a minute, or for the TTL if that is longer.
//
// A hold whose process has stopped is removed between one TTL and a tick more after the last contact; if the leader
// changed, up to one TTL after that.
//
// # The algorithm
//
// It is that of ZooKeeper's recipes, with their faults corrected. Each attempt makes an ephemeral sequential node under an
// owner of its own, in the node of the name, /prefix/name. That is a container: the servers remove it when it
// is empty. The node with the first number holds the lock. The number is not the token, for it begins anew with the
// container. The token is the container's pzxid, the transaction that last changed its children,
// as of the read that showed the node to be the first. Each other node's contender watches the node before its own, and nothing else: a
// release wakes one waiter, and so does a waiter that leaves the queue. A waiter whose session has ended
// begins again at the end of the queue. Every few seconds it looks at its own node and the one before it, however many others wait.
//
// An uncontended Lock and its Unlock are three requests in two round trips, once there is a session: the request that
// makes the node and the one that reads the queue travel together. A TryLock in vain has removed its node when it returns; until
// then another TryLock may take it for a holder.
//
// If the answer to a request that makes a node is lost, the node may appear as long as the library has not
// given the request up. So the clean-up waits for that, has the server catch up with its leader, and looks for the
// owner. What was sent on a connection is either there by then or refused, for the session has moved to another one. While
// requests arrive and answers do not, each new connection keeps the session up. The session ends here after a TTL without an
// answer, and at the servers after another: the node of an attempt that was given up stays for up to two TTLs and a tick, not one.
//
// Children with other names than ours do no harm.
//
// The servers number the children that a node ever had up to 2147483647, and cannot tell those after that apart. From a million before
// that on, at one name after two billion Locks, Lock and TryLock fail with an error that says so. Those in the queue hold in
// their turn; when it is empty the servers remove the container within a minute, and numbers begin anew. A node that others made and
// that is no container, and a container with children of others, have to be deleted by hand.
//
// The data of a node is the metadata. [locker.Client.Inspect] reads the queue and the data. ZooKeeper does not tell how long a
// session lasts nor, once others have come or gone, which token the holder has.
//
// # How long a session lasts
//
// A session lives for one time-out from the last contact that the leader has heard of. Followers answer by themselves,
// and tell the leader which sessions were in touch only when it asks them, twice a tick. So an answer alone proves
// nothing: a follower that is cut off goes on to answer for syncLimit ticks, and the leader meanwhile ends the session. Here a
// contact counts, from when it was sent, when a request that a quorum has agreed on was sent a tick after the contact was
// answered, and is answered too. The making of a session is such a request. So is Extend: it has a quorum agree that the node exists, changes
// nothing, and wakes nobody. Each session is in touch eight times
// a TTL (of 30s, if it is longer), so that a contact at hand is a tick old. A hold lasts one TTL from that: Lock and Extend leave between
// three fifths and all of the TTL. Extend in the first tick of a session's life waits for that tick to be over.
//
// The tick is taken to be a quarter of the TTL, and at most 30s. That is half a tick of the servers or more, in which a follower is
// asked once, unless their tickTime is above a minute or they grant sessions of less than two ticks
// (minSessionTimeout): then the tick has to be given. If it is given, the TTL has to be four ticks at least, and the waits of one
// tick are shorter: those of the first Lock on a connection of the application's own, and of an Extend soon after a session's first
// Lock. ZooKeeper's default is tick=2s. A tick that is given and shorter than the servers' makes the locks unsafe.
// With observers of observers, which pass contacts on in two steps, give twice the tick.
//
// What remains is the leader's own punctuality. One that stands still for longer than the rest of a session's time-out, wakes, and
// handles our request before it asks its followers or ends the session, proves a contact that it then does not count.
//
// A session that was not confirmed for one TTL counts as ended, also if the servers still know it. All holds on it
// are lost together, and what is left of them is removed. When a hold expires because nobody has extended it, its session goes on,
// with the node on it: the lock is free when the Client has removed the node.
//
// # What it is worth
//
// One holder, tokens that rise, and waiters in order, also through the loss of a minority of the servers: every change is agreed by a
// majority. While there is no majority nothing can be taken, extended or given back: waiters get an error after
// half a TTL, and holds expire. What is restored from a backup, or begins anew, counts its transactions from an earlier one:
// see [locker.WithTokenBase].
//
// # A connection of the application's own
//
// [New] takes any, with or without other uses. The TTL is the time-out of its session, and no other is possible; the library
// hides it, and it is read by reflection. New begins at once to be in touch; a Lock in the first tick waits for that to be
// over. When the session has ended the library begins another, and so do the locks. The library leaves a server that has
// stopped only after two thirds of the time-out, and comes back to the only one after a second's pause. Open's connections leave
// a server after a third of the time-out, and one of several that does not let them take up their session after an eighth; both of
// 30 s, if the time-out is longer.
// If servers differ in the time-outs that they grant, a session that moves may become shorter: on Open's connections its
// holds are lost then, on the application's that goes unnoticed. For digest authentication call the connection's AddAuth,
// and give [NewDriver] an [ACL].
//
// The application's reading of events is not disturbed if it passes nil for them. Calls that the library does not let go of,
// at a server that has stopped, may outlive Close until the application closes its connection.
package zookeeper
