// Package redis keeps locks on Redis, or Valkey, through go-redis v9: on one server, behind Redis Sentinel, or in a
// Redis Cluster. It registers redis:// and, for TLS, rediss://.
//
//	client, err := locker.Open(ctx, "redis://user:password@localhost:6379/0?ttl=10s")
//
// or, with a client of the application's own, [New].
//
// # The URL
//
//	redis[s]://[[user]:password@][host[:port]][/database][?parameter=value&…]
//	redis[s]://[[user]:password@]sentinel[:port],…[/database]?master_name=mymaster[&…]
//	redis[s]://[[user]:password@]node[:port],…?cluster=true[&…]
//	redis://[[user]:password@][/database]?socket=/run/redis/redis.sock[&…]
//
// The first is one server, by default localhost:6379, database 0. The second names sentinels, by default on port 26379, which know
// the primary by that name; user, password and database are the servers'. The third names some nodes of a Redis Cluster. The fourth is a
// server on this machine. They take these parameters, and those that every backend has, see [locker.Open]:
//
//	dial_timeout                a duration; the default is 5s, or with Sentinel three times
//	                            read_timeout if that is longer
//	read_timeout                a duration; the default is 5s, or with Sentinel and Cluster 1s,
//	                            and replica_timeout besides
//	write_timeout               a duration; the default is what read_timeout is
//	pool_size                   connections; the default is 10 for each CPU, or in a Cluster
//	                            5 for each CPU, to each node
//	client_name                 what CLIENT LIST calls the connections
//	tls_ca, tls_cert, tls_key   PEM files; with rediss:// alone
//	tls_server_name             if the certificates are for another name than the host's
//	tls_skip_verify             true: any certificate will do, also that of an intruder
//	sentinel_username           for the sentinels, if they ask for it
//	sentinel_password           the same
//	replicas, replica_timeout   as WaitReplicas; replica_timeout is 1s if it is not given
//
// TLS is for sentinels and servers alike. Each needs a certificate for its own host: the one in the URL, or the one that the sentinels or
// the cluster announce.
//
// # The protocol
//
// A lock is one hash, and each operation one script and one round trip. It follows "Distributed Locks with Redis" of the Redis
// documentation: the owner is 128 random bits, fresh for every attempt, and compared in the step that releases or extends; the TTL is set
// in the step that takes the lock. The fencing token is the server's clock in microseconds, or the last token plus 1 if that is larger. The
// last token is kept for a day after the lock has expired.
//
// A take that arrives late, by the server's clock, is granted for the rest of its TTL, counted from when it was sent, give or take
// one round trip and TTL/100 + 2 ms. One that is more than TTL/4 late takes nothing. A Client that does not know the
// server's clock asks for it first: its first take is two round trips, and so is one after 100 TTLs without any. In a Cluster the
// bound is only as good as the nodes' clocks agree. An Extend is counted from its arrival.
//
// Goroutines that share a Client of one server share round trips: while two are under way, further requests wait for one
// of them to end, or for 20 ms, and go together in one pipeline. With [WaitReplicas] all that share a round trip wait for the replicas if
// one of them has to. In a Cluster, and with a Ring, each request goes by itself, but renewals share round trips everywhere.
//
// # The queue
//
// Waiters stand in a queue at the server, in the order of first asking by the server's clock. A release claims the
// lock for the first of them, for 2 s, and publishes that on a channel of the waiter's process. Nobody else can
// take the lock meanwhile, and nobody else is woken. A client keeps one connection for subscriptions, in a Cluster
// one to each node. In case a message is lost, the first waiter of each process looks at the queue every 1 to
// 1.5 s, and when the lock would expire. A waiter that is not subscribed is passed over, and comes back to its
// place with its next look. Where there are no subscriptions (a Ring, or a user without the right) the first of a
// process looks every 0.1 to 0.2 s instead. The queue does not keep the metadata of waiters.
//
// The order holds except after a fault: a claim that is not answered, or a grant whose reply is lost for a whole TTL.
// TestQueueModel_everyOrderOfEvents, in internal/redisscript, has the scripts go through every order of requests, losses, expiries and
// deaths of a few clients.
//
// # Rights
//
// An ACL user needs ~{locker:* on the keys (or the prefix in place of locker), &{locker:* on the channels, and
//
//	to lock     EVAL EVALSHA TIME HMGET HGET HSET HDEL PTTL PEXPIRE
//	to wait     ZADD ZCARD ZPOPMIN ZRANGE ZREM ZSCORE
//	to be woken PUBSUB PUBLISH SUBSCRIBE UNSUBSCRIBE PING
//	            in a Cluster PUBSUB SPUBLISH SSUBSCRIBE SUNSUBSCRIBE PING
//	to inspect  EVAL EVALSHA HMGET PTTL ZRANGE
//	to be warned INFO
//	besides     SELECT for a database other than 0; WAIT for WaitReplicas; CLIENT SETNAME for
//	            client_name; CLUSTER SLOTS and ASKING in a Cluster, and COMMAND for a client of
//	            the application's own
//
// Without the whole second line a Lock that has to wait is an error; without the third waiters look; without ZRANGE
// [locker.Client.Inspect] shows the holder and no waiters. A user of sentinels needs SENTINEL GET-MASTER-ADDR-BY-NAME, SENTINEL
// SENTINELS, SUBSCRIBE, PING, and all channels, and CLIENT SETNAME for client_name.
//
// # What it is worth
//
// One server, and sane clocks: one holder, tokens that rise, waiters in order.
//
// The server must not evict keys: with maxmemory and any maxmemory-policy but noeviction it removes the keys of held locks, and
// others get them. A Client with a logger warns of that once, and so do [locker.Client.Warnings] and "locker check"; in a Cluster they
// ask one node. With noeviction, Lock fails when memory is used up, and Extend and Unlock work.
//
// Sentinel and Cluster keep the service up, not the lock. Replication is asynchronous: what the primary has
// granted and its replica has not received is lost in a failover, and then two hold the lock. The same goes for a primary that has been
// replaced and does not know it, and for one server that restarts and forgets. The first holder learns of it by its
// next Extend or renewal, which is ErrLost; until then only the resource can tell, because the later one's token is the larger.
//
// [WaitReplicas] narrows this, and does not close it: another replica may take over, or one that has restarted since and forgotten, and a
// primary that is cut off together with n of its replicas goes on granting. A lock that must survive the loss of a server wants another
// backend.
//
// A failover takes as long as Sentinel or the Cluster needs, and then a second or two. Waiters ride it out for half a TTL, and renewal for
// the TTL. While a slot of a Cluster moves to another node, its locks go on, though what needs the queue may take some tries, and
// waiters keep their places.
//
// # A proxy
//
// A script has the keys of one lock alone. So a proxy in front of several servers, Envoy for one, may route it by its first key, or
// by the hash tag of all. go-redis has to be able to connect: twemproxy 0.5 hangs up on HELLO, and wants the
// adapter for redigo. Each name has to be on the same server for everybody, always: a proxy that sends it to another while its own
// fails lets two hold the lock. Where the proxy refuses subscriptions waiters look.
//
// # A client of the application's own
//
// [New] takes a Client, also one of NewFailoverClient, a ClusterClient, also one of NewFailoverClusterClient, and
// a Ring. A Ring promises nothing, and [locker.Require] refuses it: a client that cannot reach a shard looks for the
// shard's locks on another one, so that two hold a lock as soon as one client alone is cut off.
//
// Lock, Unlock and Extend return when their context ends, also on a client that ignores it. Such a client's connection stays busy until
// its ReadTimeout (5 s by default); ContextTimeoutEnabled, which Open sets, frees it at TTL/2 at the latest.
//
// A client of NewFailoverClient gives up a sentinel that hangs only if its ReadTimeout, times MaxRetries and
// one, is shorter than its DialTimeout; by default it is not. A ClusterClient looks for a new primary once a minute, by default:
// when a request fails, or has taken a second, this package has it look at once.
package redis

import (
	"errors"
	"reflect"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/newdriver"
	"github.com/go-locker/locker/internal/redisscript"
)

// New makes a Client over rdb, which stays the caller's: Close does not close it. It makes no request. rdb may be
// a Client, also one of NewFailoverClient, a ClusterClient, also one of NewFailoverClusterClient, or a Ring.
func New(rdb goredis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
	d, err := NewDriver(rdb)
	if err != nil {
		return nil, err
	}
	return newdriver.Client(d, opts...)
}

// Driver implements [driver.Driver], [driver.Queuer], [driver.BatchExtender], [driver.Proposer],
// [driver.Inspector], [driver.TTLChecker] and [driver.Warner].
type Driver struct {
	*scripts
	rdb   goredis.UniversalClient
	owned bool // made by Open, and closed by Close
}

var (
	_ driver.Queuer        = (*Driver)(nil)
	_ driver.BatchExtender = (*Driver)(nil)
	_ driver.Proposer      = (*Driver)(nil)
	_ driver.Inspector     = (*Driver)(nil)
	_ driver.TTLChecker    = (*Driver)(nil)
	_ driver.Warner        = (*Driver)(nil)
)

// scripts has the methods of a Driver but Close, and is not for programs to get hold of.
type scripts = redisscript.Driver

// NewDriver makes a Driver over rdb, which stays the caller's. It makes no request, and fails for a nil client or an option
// that is not valid.
func NewDriver(rdb goredis.UniversalClient, opts ...DriverOption) (*Driver, error) {
	if v := reflect.ValueOf(rdb); rdb == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, newdriver.Refuse(errors.New("nil redis client"))
	}
	r := newRunner(rdb)
	if err := newdriver.Apply(r, opts); err != nil {
		return nil, err
	}
	return &Driver{scripts: redisscript.NewDriver(r), rdb: rdb}, nil
}

// Close ends the subscriptions, and closes the go-redis client if Open made it.
func (d *Driver) Close() error {
	return d.scripts.Close(func() error {
		if !d.owned {
			return nil
		}
		return d.rdb.Close()
	})
}

// Address is the server's host:port, and empty where the client talks to several.
func (d *Driver) Address() string {
	c, ok := d.rdb.(*goredis.Client)
	if !ok || c.Options().Addr == failoverAddr {
		return ""
	}
	return c.Options().Addr
}

// Guarantees is what Redis promises, and a Ring nothing.
func (d *Driver) Guarantees() driver.Guarantees {
	g := d.scripts.Guarantees()
	if _, ok := d.rdb.(*goredis.Ring); ok {
		for each := range g {
			g[each] = driver.Promise{Level: driver.LevelNo, Condition: "each client of a Ring decides by itself which shard is down, and takes the lock on another"}
		}
		g[driver.Woken] = driver.Promise{Level: driver.LevelNo, Condition: "a Ring has no subscriptions, and waiters look"}
	}
	return g
}

// failoverAddr is what a client of NewFailoverClient has for an address.
const failoverAddr = "FailoverClient"
