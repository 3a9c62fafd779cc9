// Package zookeeper keeps locks on Apache ZooKeeper, through go-zookeeper/zk. It registers zookeeper:// and,
// for TLS, zookeepers://.
//
//	client, err := locker.Open(ctx, "zookeeper://user:password@host1:2181,host2:2181,host3:2181/apps/shop?ttl=20s")
//
// or, with a connection of the application's own, [New]. The servers have to be of version 3.6 or later: after the restart of an
// older one tokens may fall. Connections of Open's ask for the version, by the word srvr, which servers answer unless their
// 4lw.commands.whitelist forbids it; an older one is [driver.ErrUnsupported] when a lock is first taken. Who gives a connection
// has to know.
//
// # The URL
//
//	zookeeper[s]://[user:password@][host[:port]][,host[:port]…][/path][?parameter=value&…]
//
// names servers of one ensemble, of port 2181, and with TLS of 2281, which is their secureClientPort; localhost if it
// names none. All nodes are made below the path, which is made if it is missing. The user is one of the scheme digest.
// Beside the parameters that every backend has, see [locker.Open], it takes
//
//	tick                         the tickTime that the servers are configured with, if it is known; see below
//	dial_timeout                 a duration; the default is 5s
//	acl                          world: everybody may do everything with the nodes, as without a user;
//	                             creator: only who made them, as with one
//	tls_ca, tls_cert, tls_key    PEM files; with zookeepers:// alone
//	tls_server_name              if the certificates are for another name than the host's
//	tls_skip_verify              true: any certificate will do, also that of an intruder
//
// # The TTL
//
// The TTL is the time-out of a ZooKeeper session, which the servers must grant: by default they grant from
// two to twenty of their ticks, 4s to 40s. One that they do not is [driver.ErrUnsupported] when it is first used, and
// the error says what they grant. If no TTL is chosen, Open asks the servers for 30s and takes what it gets; if nobody
// answers within the dial time-out it is 30s. Else Open makes no request. Each TTL of a Client has a session, and a
// connection, of its own, made when it is first used, and closed when it has not been for a minute, or for the TTL if that is longer.
//
// A hold whose process has stopped is removed between one TTL and a tick more after the last contact; if the leader
// changed, up to one TTL after that.
//
// # The algorithm
//
// It is that of ZooKeeper's recipes, where it was not at fault. Each attempt makes an ephemeral sequential node of its own, under an
// owner that no other goes by, in the node of the name, /prefix/name, which is a container: the servers remove it when it
// is empty. The node with the first number holds the lock. The number is not the token, for it begins anew with the
// container; the token is the container's pzxid, the transaction that last changed its children,
// as of the read that showed the node to be the first. Who is not the first watches the node before its own, and nothing else: a
// release wakes one waiter, and one that leaves from the middle of the queue wakes one who then finds the next node to
// watch. When it has waited it looks at its own node again, for the session may have ended meanwhile, and then
// it stands at the end of the queue again. Every few seconds it looks at its own node and the one before it, however many others wait.
//
// An uncontended Lock and its Unlock are three requests in two round trips, once the session stands: the request that
// makes the node and the one that reads the queue travel together. A TryLock in vain has removed its node when it returns; while it
// stands there another TryLock may take it for a holder.
//
// If the answer to a request that makes a node is lost, the node may come into being as long as the library has not
// given the request up. So the clean-up waits for that, has the server catch up with its leader, and looks for the
// owner. What was sent on a connection is either there by then or refused, for the session has moved to another one. While
// requests arrive and answers do not, each connection that is made keeps the session up, which ends here after a TTL without an
// answer, and there after another: the node of an attempt that was given up stays for up to two TTLs and a tick, not one.
//
// Children of others, those whose names are not ours, do no harm.
//
// The servers number the children that a node ever had up to 2147483647, and cannot tell those after that apart. From a million before
// that on, at one name after two billion Locks, Lock and TryLock fail with an error that says so. Those who stand in the queue hold in
// their turn; when it is empty the servers remove the container within a minute, and numbers begin anew. A node that is no container,
// because others made it, and a container with children of others, have to be deleted by hand.
//
// The data of a node is the metadata. [locker.Client.Inspect] reads the queue and the data, but ZooKeeper tells neither how long a
// session lasts nor, once others have come or gone, which token the holder has.
//
// # How long a session lasts
//
// A session lives for one time-out from the last contact that the leader has heard of. Followers answer by themselves,
// and tell the leader which sessions were in touch only when it asks them, twice a tick. So an answer alone proves
// nothing: one that is cut off goes on to answer for syncLimit ticks, and the leader meanwhile ends the session. Here a
// contact counts, from when it was sent, when a request that a quorum has agreed on was sent a tick after it was
// answered, and is answered too. The making of a session is such a request. Extend is one: it has a quorum agree that the node exists, changes
// nothing, and wakes nobody. To have a contact at hand that is a tick old, each session is in touch eight times
// a TTL (of 30s, if it is longer); a hold lasts one TTL from that, so that Lock and Extend leave between three fifths and all of the TTL. A
// session that is extended in the first tick of its life waits for that tick to be over.
//
// The tick is taken to be a quarter of the TTL, and at most 30s. That is half a tick of the servers or more, in which a follower is
// asked once, whatever their tickTime is, unless it is above a minute or they grant sessions of less than two ticks
// (minSessionTimeout): then the tick has to be given. If it is given, the TTL has to be four ticks at least, and the waits of one
// tick are shorter: those of the first Lock on a connection of the application's own, and of an Extend soon after a session's first
// Lock. ZooKeeper's default is tick=2s. A tick that is given and shorter than the servers' makes the locks unsafe.
// Observers that hang on another observer hand on what they hear in two steps: give twice the tick.
//
// What remains is the leader's own punctuality: one that stands still for longer than the rest of a session's time-out, wakes, and
// handles our request before it asks its followers or ends the session, proves a contact that it then does not count.
//
// A session that was not confirmed for one TTL counts as ended, also if the servers still know it. All holds on it
// are lost together, and what is left of them is removed. When a hold lapses because nobody has extended it, its session goes on,
// with the node on it: then the Client removes the node, and only then is the lock free.
//
// # What it is worth
//
// One holder, tokens that rise, and waiters in order, also through the loss of a minority of the servers: every change is agreed by a
// majority. While there is no majority nothing can be taken, extended or given back: waiters get an error after
// half a TTL, and holds lapse. What is restored from a backup, or begins anew, counts its transactions from an earlier one:
// see [locker.WithTokenBase].
//
// # A connection of the application's own
//
// [New] takes any, with or without other uses. The TTL is the time-out of its session, and no other is possible; the library
// hides it, and it is read by reflection. It begins at once to be in touch; a Lock in the first tick waits for that to be
// over. When the session has ended the library begins another, and so do the locks. The library leaves a server that has
// stopped only after two thirds of the time-out, and comes back to the only one after a second's pause; connections of Open's leave
// a server after a third of the time-out, and after an eighth one of several that does not let them take up their session, of a
// time-out above 30 s as if it were that.
// If servers differ in the time-outs that they grant, a session that moves may become shorter: on Open's connections its
// holds are lost then, on the application's that goes unnoticed. For digest authentication call the connection's AddAuth,
// and give [NewDriver] an [ACL].
//
// The application's reading of events is not disturbed if it passes nil for them. Calls that the library does not let go of,
// at a server that has stopped, may outlive Close until the application closes its connection.
package zookeeper

import (
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
	ctx      context.Context // of the sessions; ends with Close
	sessions *sessions.Pool[*session, *lease]
	running  sync.WaitGroup
	workers  *workers.Workers

	mu      sync.Mutex
	closed  bool
	granted time.Duration       // by the application's session; 0: not known
	full    map[string]struct{} // nodes of locks in which somebody was refused for its number
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
		sessions: sessions.NewPool[*session](), full: map[string]struct{}{}, workers: workers.New(idleWorkers),
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
		d.running.Go(func() { d.listen(events) })
	}
	if timeout, err := negotiated(conn); err == nil {
		d.granted = timeout
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
	d.running.Wait()
	d.workers.Close()
	return nil
}

func (d *Driver) root() string {
	if d.chroot == "" {
		return "/"
	}
	return d.chroot
}

// trouble is what is wrong with the connection of the session for ttl.
func (d *Driver) trouble(ttl time.Duration) error {
	if s, ok := d.sessions.Find(d.key(ttl)); ok {
		return s.trouble()
	}
	return nil
}

// Guarantees is what ZooKeeper promises.
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
