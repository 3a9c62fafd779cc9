// Package etcd keeps locks on etcd 3, through its own client. It registers etcd:// and, for TLS,
// etcds://.
//
//	client, err := locker.Open(ctx, "etcd://user:password@host1:2379,host2:2379,host3:2379?ttl=10s")
//
// [New] takes a client of your own instead.
//
// How to run the servers, and which rights a user needs:
// https://github.com/go-locker/locker/blob/main/docs/backends/etcd.md. All parameters of the URL:
// https://github.com/go-locker/locker/blob/main/docs/urls.md. How the lock works:
// docs/evidence/protocols.md there.
//
// # The URL
//
//	etcd[s]://[user:password@][host[:port]][,host[:port]…][?parameter=value&…]
//
// The hosts are members of one cluster. The default is localhost:2379. If the URL has a user, Open
// asks the cluster for a token, and fails if the cluster is unreachable. Without a user it makes no
// request.
//
// # The TTL
//
// etcd counts in whole seconds, and grants no less than one and a half of its election timeouts,
// rounded up: 2 s with its default settings. A TTL that is not in whole seconds is
// [driver.ErrUnsupported] at once. One below the server's floor, which only the server knows, is
// ErrUnsupported when it is first used. If the process of a hold stops, etcd removes the hold one
// TTL after the last contact, and at most half a second or so later than that. If the leader
// changed, it may be up to one TTL later.
//
// All holds of a Client that have the same TTL share one lease of etcd (a session), or a second one
// when the first accepts no more. The holds of a session are lost together if it ends. The Client
// revokes it when it closes.
//
// # What it is worth
//
// etcd promises one holder, rising tokens and waiters in order, also if a minority of the members
// is lost. While there is no majority nothing can be taken, extended or released: waiters get an
// error after half a TTL, and holds expire. After a restore from a backup, or if you begin with an
// empty cluster, use [locker.WithTokenBase].
//
// All this needs etcd 3.4.31, 3.5.13 or later: in older versions, a leader that was replaced could
// end sessions that its successor had renewed (etcd issue 15247). One case is left in newer
// versions: a leader that was stopped for a TTL may end such sessions at the moment it wakes. The
// holder hears of it at once, or at its next renewal.
//
// # A client of your own
//
// [New] takes any client. Set its DialKeepAliveTime and DialKeepAliveTimeout, so that it drops the
// connection to a server that has stopped. A request that is not answered within a part of the TTL
// is made again, at another server if there are several, while the first goes on.
package etcd

import (
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
	"github.com/go-locker/locker/internal/sessions"
)

// New makes a Client over cli, which stays the caller's: Close does not close it. It makes no
// request, and fails for a nil client and for an option that is refused.
func New(cli *clientv3.Client, opts ...locker.Option) (*locker.Client, error) {
	d, err := NewDriver(cli)
	if err != nil {
		return nil, err
	}
	return adapter.Client(d, opts...)
}

// backend is the Driver.
type backend struct {
	cli      *clientv3.Client
	kv       clientv3.KV // of cli
	owned    bool        // made by Open, and closed by Close
	conns    *conns      // of that; nil if it is the caller's
	sessions *sessions.Pool[*session, *entry]
	latency  latency
}

var (
	_ driver.Driver        = (*backend)(nil)
	_ driver.BatchExtender = (*backend)(nil)
	_ driver.Operator      = (*backend)(nil)
	_ driver.TTLChecker    = (*backend)(nil)
	_ driver.LossNotifier  = (*claim)(nil)
	_ driver.WaitNotifier  = (*claim)(nil)
	_ driver.Downgrader    = (*claim)(nil)
	_ driver.Leaver        = (*claim)(nil)
)

// NewDriver makes a Driver over cli, which stays the caller's: Close revokes the sessions, and does
// not close cli. It makes no request, and fails only if cli is nil.
func NewDriver(cli *clientv3.Client) (driver.Driver, error) {
	if cli == nil {
		return nil, adapter.Refuse(errors.New("nil etcd client"))
	}
	return newDriver(cli), nil
}

func newDriver(cli *clientv3.Client) *backend {
	kv := clientv3.NewKVFromKVClient(kvClient{etcdserverpb.NewKVClient(cli.ActiveConnection())}, cli)
	return &backend{cli: cli, kv: kv, sessions: sessions.NewPool[*session]()}
}

// Close revokes the sessions, and closes the etcd client if Open made it.
func (d *backend) Close() error {
	d.sessions.Close()
	if !d.owned {
		return nil
	}
	return d.cli.Close()
}

// maxTTL is etcd's own limit.
const maxTTL = 9_000_000_000 * time.Second

// CheckTTL implements driver.TTLChecker. It refuses a TTL that no etcd honours. If the election
// timeout of the servers rules out a TTL, this shows when a lock is taken.
func (d *backend) CheckTTL(ttl time.Duration) error {
	switch {
	case ttl < time.Second:
		return fmt.Errorf("%w: TTL %v: etcd counts in whole seconds: use 1s or more (2s or more if its election timeout is the default)",
			driver.ErrUnsupported, ttl)
	case ttl > maxTTL:
		return fmt.Errorf("%w: TTL %v: etcd takes at most %v", driver.ErrUnsupported, ttl, maxTTL)
	case ttl%time.Second != 0:
		down := ttl.Truncate(time.Second)
		return fmt.Errorf("%w: TTL %v: etcd counts in whole seconds: use %v or %v", driver.ErrUnsupported, ttl, down, down+time.Second)
	default:
		return nil
	}
}

// DefaultTTL leaves the default to the core.
func (d *backend) DefaultTTL() time.Duration { return 0 }

// Guarantees implements driver.Driver.
func (d *backend) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		driver.Exclusive: {Level: driver.LevelYes},
		driver.Failover: {
			Level:     driver.LevelYes,
			Condition: "with one exception. If an etcd leader is paused for a whole TTL, and another replaces it, the old leader may end a session when it goes on, though the Client renews that session",
		},
		driver.Fencing: {Level: driver.LevelYes},
		driver.FencingDurable: {
			Level:     driver.LevelConditional,
			Condition: "while a majority of the members keeps its data. After a restore, or with an empty cluster, set WithTokenBase",
		},
		driver.Ordered: {Level: driver.LevelYes},
		driver.Woken:   {Level: driver.LevelYes},
	}
}
