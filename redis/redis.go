// Package redis keeps locks on a Redis server, through go-redis v9. It registers redis:// and,
// for TLS, rediss://.
//
//	client, err := locker.Open(ctx, "redis://user:password@localhost:6379/0?ttl=10s")
//
// or, with a client of the application's own, [New].
//
// # The URL
//
//	redis[s]://[[user]:password@][host[:port]][/database][?parameter=value&…]
//
// is localhost:6379, database 0, if it does not say otherwise. Beside the parameters that every backend
// has, see [locker.Open], it takes
//
//	dial_timeout, read_timeout, write_timeout   durations; the defaults are go-redis's 5s, 3s, 3s
//	pool_size                                   connections; the default is go-redis's 10 for each CPU
//	tls_ca, tls_cert, tls_key                   PEM files; with rediss:// alone
//	tls_server_name                             if the certificate is for another name than the host's
//
// # The protocol
//
// A lock is one hash, and each operation one script: taking it is one round trip, giving it back
// another. The owner is 128 random bits, fresh for every attempt, and compared in the same step
// that releases or extends. The TTL is set in the step that takes the lock. See the Redis
// documentation, "Distributed Locks with Redis", for the pattern, and [locker.Locker] for the
// contract. The fencing token is the larger of the server's clock, in microseconds, and the last token
// plus 1. The last token is kept for a day after the lock has lapsed; what is lost with the data is
// made good by the clock.
//
// It is tested on Redis 7. An ACL user needs ~{locker:* on the keys (or the prefix in place of locker),
// and the commands EVAL, EVALSHA, TIME, HMGET, HGET, HSET, HDEL, PTTL and PEXPIRE, and SELECT for a
// database other than 0.
//
// # What it is worth
//
// One server, and sane clocks: one holder, tokens that rise. Replication is asynchronous: after
// a failover, or a restart that forgot, two may hold, and the later one has the larger token.
// Waiters poll, see [locker.WithBackoff].
//
// # Time-outs
//
// Lock, Unlock and Extend return when their context ends, also on a client that does not heed
// it. Such a client's connection stays busy until its ReadTimeout (3 s by default);
// ContextTimeoutEnabled, which Open sets, frees it at TTL/2 at the latest.
package redis

import (
	"errors"
	"reflect"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/redisscript"
)

// New makes a Client over rdb, which stays the caller's: Close does not close it. It makes no request.
func New(rdb goredis.UniversalClient, opts ...locker.Option) (*locker.Client, error) {
	d, err := NewDriver(rdb)
	if err != nil {
		return nil, err
	}
	return locker.New(d, opts...)
}

// Driver implements [locker.Driver], [locker.Queuer], [locker.BatchExtender], [locker.Proposer] and
// [locker.TTLChecker].
type Driver struct {
	*redisscript.Driver
	rdb   goredis.UniversalClient
	owned bool // made by Open, and closed by Close
}

var (
	_ locker.Queuer        = (*Driver)(nil)
	_ locker.BatchExtender = (*Driver)(nil)
	_ locker.Proposer      = (*Driver)(nil)
	_ locker.TTLChecker    = (*Driver)(nil)
)

// NewDriver makes a Driver over rdb, which stays the caller's.
func NewDriver(rdb goredis.UniversalClient) (*Driver, error) {
	if v := reflect.ValueOf(rdb); rdb == nil || v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, &locker.Error{Op: "new", Err: errors.New("nil redis client")}
	}
	return &Driver{Driver: redisscript.NewDriver(runner{rdb}), rdb: rdb}, nil
}

// Close ends the subscriptions, and closes the go-redis client if Open made it.
func (d *Driver) Close() error {
	d.Driver.Close()
	if !d.owned {
		return nil
	}
	return d.rdb.Close()
}

// Address is the server's host:port, and empty where the client talks to several.
func (d *Driver) Address() string {
	if c, ok := d.rdb.(*goredis.Client); ok {
		return c.Options().Addr
	}
	return ""
}
