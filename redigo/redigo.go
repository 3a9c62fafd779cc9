// Package redigo keeps locks on a Redis server, through gomodule/redigo. It registers redigo://
// and, for TLS, redigos://. It runs the scripts of package redis: programs that use the one and the
// other contend, and wait in one queue.
//
//	client, err := locker.Open(ctx, "redigo://user:password@localhost:6379/0?ttl=10s")
//
// [New] takes a pool of your own instead.
//
// How to run the servers, which services work, and which rights a user needs:
// https://github.com/go-locker/locker/blob/main/docs/backends/redis.md. All parameters of the URL:
// https://github.com/go-locker/locker/blob/main/docs/urls.md. How the lock works:
// docs/evidence/protocols.md there.
//
// # The URL
//
//	redigo[s]://[[user]:password@][host[:port]][/database][?parameter=value&…]
//	redigo[s]://[[user]:password@]sentinel[:port][,…][/database]?master_name=name[&parameter=value…]
//	redigo://[[user]:password@][/database]?socket=/run/redis/redis.sock[&parameter=value…]
//
// The default is localhost:6379, database 0. Sentinels are at port 26379. There is no Cluster.
//
// # What it is worth
//
// The same as package redis. There is one holder at a time, if there is one server, nobody sets its
// clock, and it evicts no keys. After a failover, or a restart without the data, two may hold. See
// package redis for when the later one has the larger token, and for what is stored and how long.
//
// # Time-outs
//
// Lock, Unlock and Extend return when their context ends, also while they wait for a connection of
// the pool, and during a Dial or a TestOnBorrow that knows no context. A connection whose request
// nobody waits for any more is closed. If the server has closed a connection, it is replaced, and
// the request sent again.
//
// A pool of one connection is enough, also if it does not Wait: several goroutines share requests.
// Waiters listen on a connection of their own. If others have used up the pool, a request goes on a
// connection beside it, which is closed afterwards, so that holds are renewed and released. Both
// are dialled as the pool dials.
package redigo

import (
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
	"github.com/go-locker/locker/internal/quorum"
	"github.com/go-locker/locker/internal/redisscript"
	"github.com/go-locker/locker/internal/redisscript/script"
)

// New makes a Client over pool, which stays the caller's: Close does not close it. It makes no
// request.
func New(pool *redis.Pool, opts ...locker.Option) (*locker.Client, error) {
	d, err := NewDriver(pool)
	if err != nil {
		return nil, err
	}
	return adapter.Client(d, opts...)
}

// backend is the Driver.
type backend struct {
	*scripts
	runner *runner
	addr   string // of the one server that Open was given
}

var _ quorum.Node = (*backend)(nil) // a Driver with all that it may have, and what package redlock needs

// scripts has the methods of a Driver but Close, and is not for programs to get hold of.
type scripts = redisscript.Driver

// DriverOption is an option of [NewDriver].
type DriverOption func(*runner) error

// WaitReplicas makes Lock and Extend succeed only if n replicas have acknowledged the grant within
// timeout, by WAIT in the same round trip. A lock that too few have acknowledged is given back. It
// costs the time of the slowest of the n replicas, and all of timeout while one is missing. A
// failover then loses a lock only if it promotes a replica that was not among the n: this is less
// likely, but may still happen. n is 1 or more. timeout is above 0, in whole milliseconds, and less
// than the pool's read timeout.
func WaitReplicas(n int, timeout time.Duration) DriverOption {
	return func(r *runner) error {
		var err error
		r.replicas, err = script.NewReplicas(n, timeout)
		return err
	}
}

// NewDriver makes a Driver over pool, which stays the caller's. Its connections have to be those of
// redigo, or to implement [redis.ConnWithContext] and [redis.ConnWithTimeout] as they do. It makes
// no request, and fails for a pool that cannot dial or an option that is not valid.
func NewDriver(pool *redis.Pool, opts ...DriverOption) (driver.Driver, error) {
	if pool == nil || pool.Dial == nil && pool.DialContext == nil {
		return nil, adapter.Refuse(errors.New("nil redigo pool, or one without Dial and DialContext"))
	}
	r := &runner{pool: pool}
	if err := adapter.Apply(r, opts); err != nil {
		return nil, err
	}
	return &backend{scripts: redisscript.NewDriver(r), runner: r}, nil
}

// Close ends the subscriptions, waits for connections that are being made, and closes the pool if
// Open made it.
func (d *backend) Close() error {
	return d.scripts.Close(func() error {
		if !d.runner.owned {
			return nil
		}
		return d.runner.pool.Close()
	})
}

// Address returns the server's host:port if the Driver was made by Open for one server. Otherwise
// it is empty, because a pool does not tell its address.
func (d *backend) Address() string { return d.addr }
