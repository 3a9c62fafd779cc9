// Package etcd keeps locks on etcd 3, through its own client. It registers etcd:// and, for TLS, etcds://.
//
//	client, err := locker.Open(ctx, "etcd://user:password@host1:2379,host2:2379,host3:2379?ttl=10s")
//
// or, with a client of the application's own, [New].
//
// # The URL
//
//	etcd[s]://[user:password@][host[:port]][,host[:port]…][?parameter=value&…]
//
// names members of one cluster, of port 2379; localhost:2379 if it names none. Beside the parameters that every backend
// has, see [locker.Open], it takes
//
//	dial_timeout                 a duration; the default is 5s
//	keepalive_time               after how long without traffic a connection is seen to; the
//	                             default, and the least, is 10s
//	keepalive_timeout            and how long the server has to answer; the default is 3s
//	tls_ca, tls_cert, tls_key    PEM files; with etcds:// alone
//	tls_server_name              if the certificates are for another name than the host's
//	tls_skip_verify              true: any certificate will do, also that of an intruder
//
// With a user, Open asks the cluster for a token, and fails if it is unreachable; else it makes no request. The etcd
// client then asks for another token with each renewal of a session, three times a TTL. Unless its --bcrypt-cost says
// otherwise, that takes the server a tenth of a second of a processor: a hundred clients want a TTL of 30s or more.
// Client certificates cost no such thing.
//
// # The TTL
//
// etcd counts in whole seconds, and grants no less than one and a half of its election timeouts, rounded up: 2 s with
// its default settings. A TTL that is not in whole seconds is [driver.ErrUnsupported] at once. One below the server's
// floor, which only the server knows, is that when it is first used. If a process stops, its hold is removed between
// one TTL and about half a second more after the last contact; if the leader changed, up to one TTL after that.
//
// # The algorithm
//
// It is that of the recipe in etcd's own package concurrency, without its faults. All holds of a Client that have the
// same TTL share a session, which is a lease of etcd's. The Client renews it, and revokes it when it closes, or has not
// used the session for a minute, or for the TTL if that is longer. Each attempt puts a key of its own into the folder
// of the name, on that lease, under an owner that no other has at the time. The oldest key holds the lock; the revision
// that created it is the fencing token. Each of the others watches the key before its own, and nothing else, so that a
// release wakes one waiter. When that key is gone the waiter reads its own key again, for the session may have ended
// meanwhile, and the one that is before it then. It also does so every few seconds.
//
// An uncontended Lock and its Unlock are one request each, once the session stands. TryLock puts its key only if the
// queue is empty, and so leaves nothing behind when it is not.
//
// If the answer to a request that puts a key is lost, the key may be put at any time while the session lives. So giving
// up is one request that removes the key and puts a mark, on the same session; every put compares with it. That request
// is made again until it is answered or the session has ended. A session with 64 such marks is replaced.
//
// Keys of others in the folder, those that are not 32 hexadecimal digits on a lease, do no harm.
//
// # A session that outlives a hold
//
// A session counts from when the last keepalive was sent that has been answered, and a hold lasts no longer than the
// session is known to. When a hold expires because nobody has extended it, its session goes on, with the key on it.
// Then the Client removes the key, and only then is the lock free. Extend renews the session, and looks for the key
// after that. A session that was not confirmed for one TTL counts as ended, also if the server still knows it, and all
// holds on it are lost. The Client tries to have it revoked; else it expires at the server.
//
// # What it is worth
//
// One holder, tokens that rise, and waiters in order, also through the loss of a minority of the members, for every
// step is agreed by a majority. While there is no majority nothing can be taken, extended or given back: waiters get an
// error after half a TTL, and holds expire. What is restored from a backup, or begins anew, counts its revisions from
// an earlier one: see [locker.WithTokenBase].
//
// That takes etcd 3.4.31, 3.5.13 or later. In earlier versions a leader that had been replaced, and did not know it,
// could end sessions that its successor had renewed, and then two may hold (etcd issue 15247); before 3.4.25 and 3.5.8
// it could also renew them, in vain. Later ones make sure that they still lead, unless they have just been at work, as
// a leader that was stopped for a TTL believes when it wakes: version 3.6.16 then ended a session, renewed a moment
// before, in 1 of 14 trials on a busy machine. The holder learns it at the next renewal; until then the fencing token
// protects.
//
// # Rights
//
// A user needs to read and write what begins with the prefix and a colon:
//
//	etcdctl role grant-permission app readwrite --prefix=true locker:
//
// To see who holds a lock, and who waits, by [locker.Client.Inspect], it is enough to read.
//
// # A client of the application's own
//
// [New] takes any. Set its DialKeepAliveTime and DialKeepAliveTimeout, so that connections to a server that has stopped
// are given up. Besides, a request that is not answered in time is made again, at another server: at first after
// TTL/20, at least 150 ms and at most 1 s, and with a user after TTL/6 or more.
package etcd

import (
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/newdriver"
	"github.com/go-locker/locker/internal/sessions"
)

// New makes a Client over cli, which stays the caller's: Close does not close it. It makes no request, and fails for a nil client
// and for an option that is refused.
func New(cli *clientv3.Client, opts ...locker.Option) (*locker.Client, error) {
	d, err := NewDriver(cli)
	if err != nil {
		return nil, err
	}
	return newdriver.Client(d, opts...)
}

// Driver implements [driver.Driver], [driver.Queuer], [driver.BatchExtender], [driver.Inspector] and [driver.TTLChecker].
type Driver struct {
	cli      *clientv3.Client
	owned    bool // made by Open, and closed by Close
	sessions *sessions.Pool[*session, *lease]
}

var (
	_ driver.Queuer        = (*Driver)(nil)
	_ driver.BatchExtender = (*Driver)(nil)
	_ driver.Inspector     = (*Driver)(nil)
	_ driver.TTLChecker    = (*Driver)(nil)
	_ driver.LossNotifier  = (*lease)(nil)
)

// NewDriver makes a Driver over cli, which stays the caller's: Close revokes the sessions, and does not close it. It makes no
// request, and fails for a nil client alone.
func NewDriver(cli *clientv3.Client) (*Driver, error) {
	if cli == nil {
		return nil, newdriver.Refuse(errors.New("nil etcd client"))
	}
	return newDriver(cli), nil
}

func newDriver(cli *clientv3.Client) *Driver {
	return &Driver{cli: cli, sessions: sessions.NewPool[*session]()}
}

// Close revokes the sessions, and closes the etcd client if Open made it.
func (d *Driver) Close() error {
	d.sessions.Close()
	if !d.owned {
		return nil
	}
	return d.cli.Close()
}

// maxTTL is etcd's own limit.
const maxTTL = 9_000_000_000 * time.Second

// CheckTTL implements driver.TTLChecker. It refuses what no etcd honours. What a server's election timeout rules out shows when a
// lock is taken.
func (d *Driver) CheckTTL(ttl time.Duration) error {
	switch {
	case ttl < time.Second:
		return fmt.Errorf("%w: TTL %v: etcd counts in whole seconds: use 1s or more (2s or more if its election timeout is the default)",
			driver.ErrUnsupported, ttl)
	case ttl%time.Second != 0:
		down := ttl.Truncate(time.Second)
		return fmt.Errorf("%w: TTL %v: etcd counts in whole seconds: use %v or %v", driver.ErrUnsupported, ttl, down, down+time.Second)
	case ttl > maxTTL:
		return fmt.Errorf("%w: TTL %v: etcd takes at most %v", driver.ErrUnsupported, ttl, maxTTL)
	default:
		return nil
	}
}

// Guarantees implements driver.Driver.
func (d *Driver) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		driver.Exclusive: {Level: driver.LevelYes},
		driver.Failover: {
			Level:     driver.LevelYes,
			Condition: "but a leader that stood still for a TTL and was replaced may, as it wakes, end a session that goes on",
		},
		driver.Fencing: {Level: driver.LevelYes},
		driver.FencingDurable: {
			Level:     driver.LevelConditional,
			Condition: "while a majority of the members keeps its data; after a restore, or a new beginning, it takes WithTokenBase",
		},
		driver.Ordered: {Level: driver.LevelYes},
		driver.Woken:   {Level: driver.LevelYes},
	}
}
