// Package redis keeps locks on Redis, or Valkey, through go-redis v9: on one server, behind Redis
// Sentinel, or in a Redis Cluster. It registers redis:// and, for TLS, rediss://.
//
//	client, err := locker.Open(ctx, "redis://user:password@localhost:6379/0?ttl=10s")
//
// [New] takes a client of your own instead.
//
// How to run the servers, which services work, and which rights a user needs:
// https://github.com/go-locker/locker/blob/main/docs/backends/redis.md. All parameters of the URL:
// https://github.com/go-locker/locker/blob/main/docs/urls.md. How the lock works:
// docs/evidence/protocols.md there.
//
// # The URL
//
//	redis[s]://[[user]:password@][host[:port]][/database][?parameter=value&…]
//	redis[s]://[[user]:password@]sentinel[:port],…[/database]?master_name=mymaster[&…]
//	redis[s]://[[user]:password@]node[:port],…?cluster=true[&…]
//	redis://[[user]:password@][/database]?socket=/run/redis/redis.sock[&…]
//
// The first names one server; the default is localhost:6379, database 0. The second asks sentinels,
// at port 26379, for the primary that they call master_name; user, password and database are the
// servers'. The third names some nodes of a Redis Cluster. The fourth names a Unix socket. TLS is
// for sentinels and servers alike. Each needs a certificate for its host in the URL. A server whose
// host is not in the URL needs one for the name that the sentinels or the cluster announce.
//
// # What it is worth
//
// On one server whose clock nobody sets: one holder, tokens that rise, waiters in order. The server
// must not evict keys: set maxmemory-policy to noeviction. Replication is asynchronous. A failover
// may lose the lock, and then two hold it. The later holder has the larger token if no clock was
// set back and the replica's clock is not behind the old primary's. The first holder is told at its
// next renewal. [WaitReplicas] makes such a loss less likely, and does not exclude it. A server
// that restarts without its data has forgotten its locks, too.
//
// While the server keeps its data, tokens rise also if its clock jumps; docs/evidence/protocols.md
// has the one exception. A name is stored for its TTL and one minute from the latest take or
// renewal. One small key stays for each prefix: the mark, which keeps tokens rising. In a Cluster
// there is one mark for each slot in use.
//
// # A client of your own
//
// [New] takes a Client, also one of NewFailoverClient; a ClusterClient, also one of
// NewFailoverClusterClient; and a Ring. A Ring promises nothing, and [locker.Require] refuses it.
//
// Lock, Unlock and Extend return when their context ends, even if the client does not heed it: a
// goroutine of the library makes the request. With ContextTimeoutEnabled, and a context that cannot
// be cancelled, the calling goroutine makes it, which is faster.
// Such a client's connection stays busy until its ReadTimeout, 5 s by default;
// ContextTimeoutEnabled, which Open sets, frees it at TTL/2 at the latest. If the application's own
// commands have used up the pool of a Client, or of the node of a ClusterClient, requests go on up
// to four connections beside it, made from the client's options, so that holds are renewed and
// released. Hooks do not see those requests.
//
// If the server is down, a client with its default options dials up to 20 times for a request, and
// TryLock returns after about 2 s. With DialerRetries of 1, as Open sets it, that is 0.1 s.
//
// If a sentinel hangs, a client of NewFailoverClient gives it up only if (MaxRetries + 1) ×
// ReadTimeout is shorter than DialTimeout. By default it is not. A ClusterClient looks for a new
// primary once a minute by default; this package makes it look at once if a request fails, or takes
// a second.
package redis

import (
	"errors"
	"reflect"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
	"github.com/go-locker/locker/internal/quorum"
	"github.com/go-locker/locker/internal/redisscript"
)

// New makes a Client over rdb, which stays the caller's: Close does not close it. It makes no
// request. rdb may be go-redis's Client (also one of NewFailoverClient), its ClusterClient (also
// one of NewFailoverClusterClient), or its Ring.
func New(rdb goredis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
	d, err := NewDriver(rdb)
	if err != nil {
		return nil, err
	}
	return adapter.Client(d, opts...)
}

// backend is the Driver.
type backend struct {
	*scripts
	rdb    goredis.UniversalClient
	runner *runner
	owned  bool // made by Open, and closed by Close
}

var _ quorum.Node = (*backend)(nil) // a Driver with all that it may have, and what package redlock needs

// scripts has the methods of a Driver but Close, and is not for programs to get hold of.
type scripts = redisscript.Driver

// NewDriver makes a Driver over rdb, which stays the caller's. It makes no request, and fails for a
// nil client or an option that is not valid.
func NewDriver(rdb goredis.UniversalClient, opts ...DriverOption) (driver.Driver, error) {
	if v := reflect.ValueOf(rdb); rdb == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, adapter.Refuse(errors.New("nil redis client"))
	}
	r := newRunner(rdb)
	if err := adapter.Apply(r, opts); err != nil {
		return nil, err
	}
	return &backend{scripts: redisscript.NewDriver(r), rdb: rdb, runner: r}, nil
}

// Close ends the subscriptions, and closes the go-redis client if Open made it.
func (d *backend) Close() error {
	return d.scripts.Close(func() error {
		d.runner.spare.close()
		if !d.owned {
			return nil
		}
		return d.rdb.Close()
	})
}

// Address returns the server's host:port. It is empty if the client talks to several servers.
func (d *backend) Address() string {
	c, ok := d.rdb.(*goredis.Client)
	if !ok || c.Options().Addr == failoverAddr {
		return ""
	}
	return c.Options().Addr
}

// Guarantees returns what Redis promises. A Ring promises nothing.
func (d *backend) Guarantees() driver.Guarantees {
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
