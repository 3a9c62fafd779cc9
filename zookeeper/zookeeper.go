// Package zookeeper keeps locks on Apache ZooKeeper, through go-zookeeper/zk. It registers zookeeper:// and, for TLS, zookeepers://.
//
//	client, err := locker.Open(ctx, "zookeeper://user:password@host1:2181,host2:2181,host3:2181/apps/shop?ttl=20s")
//
// [New] takes a connection of your own instead.
//
// How to run the servers, and which rights a user needs: https://github.com/go-locker/locker/blob/main/docs/backends/zookeeper.md.
// All parameters of the URL: https://github.com/go-locker/locker/blob/main/docs/urls.md. How the lock works: docs/protocols-consensus.md there.
//
// The servers have to be of version 3.6 or later: after the restart of an older one tokens may fall. Connections of Open ask for the
// version, by the word srvr, unless the servers' 4lw.commands.whitelist forbids it; an older one is [driver.ErrUnsupported] when a lock is
// first taken. With a connection of your own, check the version yourself.
//
// # The URL
//
//	zookeeper[s]://[user:password@][host[:port]][,host[:port]…][/path][?parameter=value&…]
//
// names servers of one ensemble, at port 2181, and with TLS at 2281, their secureClientPort; the default is localhost. All nodes
// are made below the path, which is made if it is missing. The user is one of the scheme digest.
//
// # The TTL
//
// The TTL is the time-out of a ZooKeeper session, which the servers must grant: by default 2 to 20 of their ticks, 4 s to 40 s.
// One that they do not grant is [driver.ErrUnsupported] when it is first used, and the error says what they grant. If no TTL is chosen, Open
// asks the servers for 30 s and takes what it gets; if nobody answers within the dial time-out the TTL is 30 s. Else Open makes no request.
//
// Each TTL of a Client has a session and a connection of its own, made at first use, and closed when it was not used for a minute, or
// for the TTL if that is longer. All holds on a session are lost together if it ends. If the process of a hold has stopped, the servers
// remove the hold one TTL to a tick more after the last contact, or up to one TTL later if the leader changed.
//
// The tick is taken to be a quarter of the TTL, at most 30 s. Give it, by the parameter tick or by [Tick], if the servers' tickTime is above a
// minute, or their minSessionTimeout below two ticks. A tick that is shorter than the servers' makes the locks unsafe.
//
// # What it is worth
//
// One holder, tokens that rise, and waiters in order, also through the loss of a minority of the servers. While there is no majority
// nothing can be taken, extended or released: waiters get an error after half a TTL, and holds expire. After a restore from a backup, or a
// new beginning, use [locker.WithTokenBase]. After two billion Locks of one name, Lock fails until its queue is empty and the servers have
// removed its node.
//
// [locker.Client.Inspect] cannot tell how long the holder's session lasts, nor, once others have come or gone, the holder's token.
//
// # A connection of your own
//
// [New] takes any, with or without other uses. The TTL is the time-out of its session, and no other is possible; the library hides it,
// and it is read by reflection. A Lock in the session's first tick waits for that tick. When the session has ended the library begins another,
// and the locks go on with it. The library leaves a server that has stopped after two thirds of the time-out, connections of Open
// after a third. If servers grant different time-outs, a session that moves may become shorter, which goes unnoticed here. For digest
// authentication call the connection's AddAuth, and give NewDriver an [ACL].
//
// Pass nil for the events if the program reads them itself. Calls that the library does not let go of, at a server that has stopped, may
// outlive Close until you close the connection.
package zookeeper

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/newdriver"
	"github.com/go-locker/locker/internal/sessions"
	"github.com/go-locker/locker/internal/workers"
)

// New makes a Client over conn, which stays the caller's: Close does not close it. events is what [zk.Connect] returned, and is
// read until the Client is closed; or nil, if the application reads it itself. Then the end of a session is noticed
// a little later.
func New(conn *zk.Conn, events <-chan zk.Event, opts ...locker.Option) (*locker.Client, error) {
	d, err := NewDriver(conn, events)
	if err != nil {
		return nil, err
	}
	return newdriver.Client(d, opts...)
}

// user is one of the scheme digest. It is behind a pointer, which a Driver that is printed does not follow.
type user struct{ name, password string }

// Driver implements [driver.Driver], [driver.Queuer], [driver.BatchExtender], [driver.Inspector], [driver.TTLChecker]
// and [driver.TTLDefaulter].
type Driver struct {
	conn        *zk.Conn // the application's; nil if each session has one of its own
	changes     signal   // of its state
	servers     []string
	tls         *tls.Config // nil: none
	user        *user       // nil: none
	chroot      string      // empty, or with a slash at its beginning and none at its end
	acl         []zk.ACL
	tick        time.Duration // 0: not given
	dialTimeout time.Duration
	opening     context.Context // of Open, for DefaultTTL

	recent   atomic.Bool     // a server has said that its version is
	granted  atomic.Int64    // the time-out of the application's session; 0: not known
	full     sync.Map        // nodes of locks in which somebody was refused for its number
	ctx      context.Context // of the sessions; ends with Close
	sessions *sessions.Pool[*session, *lease]
	workers  *workers.Workers

	mu     sync.Mutex
	closed bool
}

var (
	_ driver.Queuer        = (*Driver)(nil)
	_ driver.BatchExtender = (*Driver)(nil)
	_ driver.Inspector     = (*Driver)(nil)
	_ driver.TTLChecker    = (*Driver)(nil)
	_ driver.TTLDefaulter  = (*Driver)(nil)
	_ driver.LossNotifier  = (*lease)(nil)
)

func newDriver() *Driver {
	d := &Driver{
		acl: zk.WorldACL(zk.PermAll), dialTimeout: 5 * time.Second,
		sessions: sessions.NewPool[*session](), workers: workers.New(idleWorkers),
	}
	d.ctx = d.sessions.Context()
	return d
}

// NewDriver makes a Driver over conn, which stays the caller's; see [New] for events. It begins at once to be in touch with the
// session, until Close, so that the first lock does not have to wait for a tick; for that it does not wait itself. It fails
// for a nil connection, and for an option that is nil or not valid.
func NewDriver(conn *zk.Conn, events <-chan zk.Event, opts ...DriverOption) (*Driver, error) {
	if conn == nil {
		return nil, newdriver.Refuse(errors.New("nil ZooKeeper connection"))
	}
	d := newDriver()
	d.conn = conn
	if err := newdriver.Apply(d, opts); err != nil {
		return nil, err
	}
	if events != nil {
		_ = d.spawn(func() { d.listen(events) })
	}
	if timeout, err := negotiated(conn); err == nil {
		d.granted.Store(int64(timeout))
	}
	_, _ = d.sessionFor(sessionTimeout, true)
	return d, nil
}

// listen has a session's end noticed at once.
func (d *Driver) listen(events <-chan zk.Event) {
	for {
		select {
		case e, open := <-events:
			if !open {
				return
			}
			if e.Type != zk.EventSession {
				continue
			}
		case <-d.ctx.Done():
			return
		}
		d.changes.raise()
		if s, ok := d.sessions.Find(d.key(0)); ok {
			s.Wake()
		}
	}
}

// idleWorkers is how many goroutines a Driver keeps for calls of the library.
const idleWorkers = 16

// spawn runs f in a goroutine that Close waits for.
func (d *Driver) spawn(f func()) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return driver.ErrClosed
	}
	d.workers.Do(workers.Func(f))
	return nil
}

// Close ends the sessions that were made for Open, and leaves the application's connection alone.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.sessions.Close()
	d.workers.Close()
	return nil
}

func (d *Driver) root() string { return cmp.Or(d.chroot, "/") }

// trouble returns what is wrong with the connection of the session for ttl.
func (d *Driver) trouble(ttl time.Duration) error {
	if s, ok := d.sessions.Find(d.key(ttl)); ok {
		return s.trouble()
	}
	return nil
}

// Guarantees returns what ZooKeeper promises.
func (d *Driver) Guarantees() driver.Guarantees {
	return driver.Guarantees{
		driver.Exclusive: {Level: driver.LevelYes},
		driver.Failover:  {Level: driver.LevelYes},
		driver.Fencing:   {Level: driver.LevelYes},
		driver.FencingDurable: {
			Level:     driver.LevelConditional,
			Condition: "while a majority of the servers keeps its data; after a restore, or a new beginning, it takes WithTokenBase",
		},
		driver.Ordered: {Level: driver.LevelYes},
		driver.Woken:   {Level: driver.LevelYes},
	}
}
