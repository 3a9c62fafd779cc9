package zookeeper

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
	"github.com/go-locker/locker/internal/sessions"
	"github.com/go-locker/locker/internal/workers"
)

// New makes a Client over the servers of one ensemble, each named as host:port. With
// [locker.WithTTL] it connects at the first lock. Without it, it connects at once, to learn the TTL
// that the servers grant. For a user, TLS, and what else concerns ZooKeeper there is [NewDriver].
func New(servers []string, opts ...locker.Option) (*locker.Client, error) {
	d, err := NewDriver(servers)
	if err != nil {
		return nil, err
	}
	return adapter.Client(d, opts...)
}

// backend is the Driver.
type backend struct {
	servers     []string
	dial        func(ctx context.Context, network, address string) (net.Conn, error)
	tls         func(context.Context) *tls.Config // of one connection; nil: none
	user        *user                             // nil: none
	chroot      string                            // empty, or with a slash at its beginning and none at its end
	acl         []zk.ACL
	tick        time.Duration // 0: not given
	dialTimeout time.Duration
	opening     context.Context // of Open, for DefaultTTL; nil: none

	recent    atomic.Bool // a server's version is recent enough
	exhausted sync.Map    // nodes of locks in which somebody was refused for its number
	sessions  *sessions.Pool[*session, *lease]
	workers   *workers.Workers

	mu     sync.Mutex
	closed bool
}

var (
	_ driver.Driver        = (*backend)(nil)
	_ driver.BatchExtender = (*backend)(nil)
	_ driver.Operator      = (*backend)(nil)
	_ driver.TTLChecker    = (*backend)(nil)
)

const (
	idleWorkers    = 16               // goroutines that are kept for calls of the library
	sessionTimeout = 30 * time.Second // if none is chosen
)

// NewDriver makes a Driver over the servers of one ensemble, each named as host:port. It makes no
// connection. It fails if there are no servers, and for an option that is nil or not valid.
func NewDriver(servers []string, opts ...DriverOption) (driver.Driver, error) {
	if len(servers) == 0 {
		return nil, adapter.Refuse(errors.New("no servers"))
	}
	d := newDriver(slices.Clone(servers))
	return d, adapter.Apply(d, opts)
}

func newDriver(servers []string) *backend {
	return &backend{
		servers: servers, dial: new(net.Dialer).DialContext, dialTimeout: 5 * time.Second, acl: zk.WorldACL(zk.PermAll),
		sessions: sessions.NewPool[*session](), workers: workers.New(idleWorkers),
	}
}

// spawn runs f in a goroutine that Close waits for.
func (d *backend) spawn(f func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return driver.ErrClosed
	}
	d.workers.Do(workers.Func(f))
	return nil
}

// Close implements driver.Driver: it ends the sessions.
func (d *backend) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.sessions.Close()
	d.workers.Close()
	return nil
}

func (d *backend) root() string { return cmp.Or(d.chroot, "/") }

// session returns the session for ttl, which may not have started yet. With anyTTL its TTL is the
// one that the servers grant.
func (d *backend) session(ttl time.Duration, anyTTL bool) (*session, error) {
	return d.sessions.Get(ttl, func() *session { return newSession(d, ttl, anyTTL) })
}

// CheckTTL refuses a TTL that no ZooKeeper honours. If the servers' own limits rule out a TTL, this
// shows when a lock is taken.
func (d *backend) CheckTTL(ttl time.Duration) error {
	least := ticksPerTTL * d.tick
	switch {
	case ttl < least:
		return fmt.Errorf("%w: TTL %v: with a tick of %v use %v or more, or %s", driver.ErrUnsupported, ttl, d.tick, least, sayTick)
	case ttl%time.Millisecond != 0:
		return fmt.Errorf("%w: TTL %v: ZooKeeper counts in whole milliseconds: use %v", driver.ErrUnsupported, ttl, ttl.Round(time.Millisecond))
	case ttl > math.MaxInt32*time.Millisecond:
		return fmt.Errorf("%w: TTL %v: ZooKeeper takes at most %v", driver.ErrUnsupported, ttl, math.MaxInt32*time.Millisecond)
	default:
		return nil
	}
}

// sayTick is how to have a shorter TTL.
const sayTick = "say with the parameter or option tick what tickTime the servers have"

// DefaultTTL returns the time-out that the servers grant a session that asks for 30s; 30s if nobody
// answers within the dial time-out.
func (d *backend) DefaultTTL() time.Duration {
	ctx, cancel := context.WithTimeout(cmp.Or(d.opening, d.sessions.Context()), d.dialTimeout)
	defer cancel()
	if s, err := d.session(sessionTimeout, true); err == nil && s.Wait(ctx) == nil {
		return s.TTL
	}
	return sessionTimeout
}

// Guarantees returns what ZooKeeper promises.
func (d *backend) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		driver.Exclusive: {Level: driver.LevelYes},
		driver.Failover:  {Level: driver.LevelYes},
		driver.Fencing:   {Level: driver.LevelYes},
		driver.FencingDurable: {
			Level:     driver.LevelConditional,
			Condition: "while a majority of the servers keeps its data. After a restore, or with empty servers, set WithTokenBase",
		},
		driver.Ordered: {Level: driver.LevelYes},
		driver.Woken:   {Level: driver.LevelYes},
	}
}
