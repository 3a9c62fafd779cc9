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
	"github.com/go-locker/locker/internal/adapter"
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
	return adapter.Client(d, opts...)
}

// user is one of the scheme digest. It is behind a pointer, which a Driver that is printed does not follow.
type user struct{ name, password string }

// Driver implements [driver.Driver], [driver.BatchExtender], [driver.Inspector], [driver.Lister],
// [driver.ForceReleaser], [driver.TTLChecker] and [driver.TTLDefaulter].
type Driver struct {
	conn        *zk.Conn // the application's; nil if each session has one of its own
	changes     signal   // of its state
	hears       bool     // its events
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
	_ driver.Driver        = (*Driver)(nil)
	_ driver.BatchExtender = (*Driver)(nil)
	_ driver.Inspector     = (*Driver)(nil)
	_ driver.Lister        = (*Driver)(nil)
	_ driver.ForceReleaser = (*Driver)(nil)
	_ driver.TTLChecker    = (*Driver)(nil)
	_ driver.TTLDefaulter  = (*Driver)(nil)
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
		return nil, adapter.Refuse(errors.New("nil ZooKeeper connection"))
	}
	d := newDriver()
	d.conn = conn
	if err := adapter.Apply(d, opts); err != nil {
		return nil, err
	}
	if d.hears = events != nil; d.hears {
		_ = d.spawn(func() { d.listen(events) })
	}
	if timeout, err := negotiated(conn); err == nil {
		d.granted.Store(int64(timeout))
	}
	_, _ = d.sessionFor(sessionTimeout, true)
	return d, nil
}

// listen has the end of the session, and of holds, noticed at once.
func (d *Driver) listen(events <-chan zk.Event) {
	for {
		select {
		case e, open := <-events:
			if !open {
				return
			}
			s, ok := d.sessions.Find(d.key(0))
			if ok && e.Type != zk.EventSession {
				s.hear(e)
			}
			if e.Type != zk.EventSession {
				continue
			}
			d.changes.raise()
			if ok {
				s.Wake()
			}
		case <-d.ctx.Done():
			return
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

// failure returns what is wrong with the connection of the session for ttl.
func (d *Driver) failure(ttl time.Duration) error {
	if s, ok := d.sessions.Find(d.key(ttl)); ok {
		return s.failure()
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
