// Package redigo keeps locks on a Redis server, through gomodule/redigo. It registers redigo:// and,
// for TLS, redigos://. It speaks the protocol of package redis, with the same scripts: programs that
// use the one and the other contend, and wait in one queue.
//
//	client, err := locker.Open(ctx, "redigo://user:password@localhost:6379/0?ttl=10s")
//
// or, with a pool of the application's own, [New].
//
// # The URL
//
//	redigo[s]://[[user]:password@][host[:port]][/database][?parameter=value&…]
//	redigo[s]://[[user]:password@]sentinel[:port][,…][/database]?master_name=name[&parameter=value…]
//	redigo://[[user]:password@][/database]?socket=/run/redis/redis.sock[&parameter=value…]
//
// is localhost:6379, database 0, if it does not say otherwise. Beside the parameters that every backend
// has, see [locker.Open], it takes
//
//	dial_timeout                a duration; the default is 5s
//	read_timeout                a duration; the default is 3s
//	write_timeout               a duration; the default is 3s
//	pool_size                   connections; the default is 10 for each CPU
//	replicas, replica_timeout   as WaitReplicas; replica_timeout is 1s by default
//	client_name                 what CLIENT LIST calls the connections
//	tls_ca, tls_cert, tls_key   PEM files; with redigos:// alone
//	tls_server_name             if the certificate is for another name than the host's
//	tls_skip_verify             true: any certificate will do, also that of an intruder
//	master_name                 the hosts are sentinels, on port 26379, that know it by this name
//	sentinel_username           of the sentinels; user and password are those of the servers
//	sentinel_password           the same
//
// # The protocol
//
// The protocol, its queue, its rights and what it is worth are those of package redis on one server: see there. Waiters are told on one
// connection for all of a Client. It is dialled as the pool would and is not one of the pool's, so that a pool of one connection is
// enough. Beside those rights Sentinel takes ROLE. A proxy that routes a script by its first key will do, as twemproxy and Envoy do, if it
// never sends a name to another server (auto_eject_hosts of twemproxy lets two hold the lock).
//
// # Time-outs
//
// Lock, Unlock and Extend return when their context ends, also while they wait for a connection of the
// pool, and while a Dial or a TestOnBorrow that knows no context goes on. A pool that is exhausted and
// does not Wait is an error at once. A connection on which no request is waited for any more is closed; one
// that the server has closed is replaced, and the request sent again.
package redigo

import (
	"errors"
	"time"

	"github.com/gomodule/redigo/redis"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/newdriver"
	"github.com/go-locker/locker/internal/redisscript"
)

// New makes a Client over pool, which stays the caller's: Close does not close it. It makes no request.
func New(pool *redis.Pool, opts ...locker.Option) (*locker.Client, error) {
	d, err := NewDriver(pool)
	if err != nil {
		return nil, err
	}
	return newdriver.Client(d, opts...)
}

// Driver implements [driver.Driver], [driver.Queuer], [driver.BatchExtender], [driver.Proposer],
// [driver.Inspector], [driver.TTLChecker] and [driver.Warner].
type Driver struct {
	*scripts
	runner *runner
	addr   string // of the one server that Open was given
	owned  bool   // made by Open, and closed by Close
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

// DriverOption is an option of [NewDriver].
type DriverOption func(*runner) error

// WaitReplicas has Lock and Extend succeed only when n replicas have acknowledged the grant within
// timeout, by WAIT in the same round trip: whole milliseconds, and less than the pool's read timeout. A
// lock that too few know of is given back. It costs the time of the slowest of the n, and all of
// timeout while one is missing. A failover loses such a lock only if it promotes a replica that was not among
// the n: it narrows the gap, and does not close it. Both have to be given: n of 1 or more, a timeout above 0.
func WaitReplicas(n int, timeout time.Duration) DriverOption {
	return func(r *runner) error {
		var err error
		r.replicas, err = redisscript.NewReplicas(n, timeout)
		return err
	}
}

// NewDriver makes a Driver over pool, which stays the caller's. Its connections have to be those of
// redigo, or to implement [redis.ConnWithContext] and [redis.ConnWithTimeout] as they do. It makes no request, and fails for a pool that cannot
// dial or an option that is not valid.
func NewDriver(pool *redis.Pool, opts ...DriverOption) (*Driver, error) {
	if pool == nil || pool.Dial == nil && pool.DialContext == nil {
		return nil, newdriver.Refuse(errors.New("nil redigo pool, or one without Dial and DialContext"))
	}
	r := &runner{pool: pool}
	if err := newdriver.Apply(r, opts); err != nil {
		return nil, err
	}
	return &Driver{scripts: redisscript.NewDriver(r), runner: r}, nil
}

// Close ends the subscriptions, waits for connections that are being made, and closes the pool if
// Open made it.
func (d *Driver) Close() error {
	return d.scripts.Close(func() error {
		if !d.owned {
			return nil
		}
		return d.runner.pool.Close()
	})
}

// Address is the server's host:port if the Driver was made by Open for one server, else empty: a pool
// does not tell.
func (d *Driver) Address() string { return d.addr }
