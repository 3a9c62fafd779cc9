// Package redlock keeps locks on a majority of independent Redis nodes, by the algorithm that is called
// Redlock, with fencing tokens that rise.
//
//	var nodes []driver.Driver
//	for _, rdb := range clients { // of go-redis, say; one for each server
//		node, err := redis.NewDriver(rdb)
//		…
//		nodes = append(nodes, node)
//	}
//	client, err := redlock.New(nodes)
//
// or, with the package of the nodes' driver imported beside this one, by URL:
//
//	client, err := locker.Open(ctx, "redlock://user:password@h1:6379,h2:6379,h3:6379/0?ttl=10s")
//
// The nodes are Drivers, those of the redis and the redigo package, which may be mixed; any
// [driver.Proposer] will do. There must be at least three. An even number tolerates no more failures than
// the odd one below it. They must not replicate to each other.
//
// # The URL
//
//	redlock://[[user]:password@]host[:port],host[:port],host[:port][,…][/database][?parameter=value&…]
//
// Beside the parameters that every backend has, see [locker.Open], it takes
//
//	driver         the scheme by which each node is opened: redis (the default), rediss, redigo, redigos
//	node_timeout   as NodeTimeout
//
// and those of the driver, which go to each node, as user, password and database do. The program imports
// the package of the driver, and so compiles no other client library.
//
// # The algorithm
//
// It is that of the Redis documentation, "Distributed Locks with Redis":
//
//   - An attempt asks all nodes at once for the lock, under an owner of its own that no other attempt
//     has. Each request has a time-out far below the TTL, see [NodeTimeout].
//   - It has the lock if a majority has granted it. The lock then lasts one TTL from before the first
//     request, less an allowance for drift.
//   - An attempt that fails gives back what it has, at every node: also at those that answer late, or have
//     not answered at all. Waiters pause for a random time, so that a split vote is not repeated for ever.
//     TryLock may say that another has the lock when nobody has: votes were split, or a node has yet to be
//     told of a release, which a majority had confirmed when Unlock returned.
//   - Extend asks all nodes, and needs a majority before the lock has lapsed. Nodes that do not have the
//     lock (they were away when it was taken, or another's attempt had it there) are asked to take it in
//     the same round, those that came back empty right after it.
//
// [Driver.Inspect] asks all nodes, too, and says what a majority says.
//
// Every outcome is known as soon as enough nodes have answered: a minority that is dead, hangs, is slow or
// refuses to write delays nothing. A node that has not answered for a while is asked by one request at a time, so
// that nothing piles up.
//
// There is one exception. A node that grants the lock after a majority has, or that joins later, does not show
// that nobody else had the lock before. It counts in full from the next Extend that succeeds. Until then an Extend or
// Unlock that has to count it waits for the others, for their time-out at most; one that does not answer is taken to
// have the lock still. If too many of the others have lost it, the hold is lost: another may have come and gone. So one
// of three nodes that restarts empty before the first Extend after a Lock may end the hold. After that it does not.
//
// # Tokens
//
// The documentation's algorithm has none. Here an attempt proposes a token, the clock in
// microseconds. A node accepts it in the step in which it grants the lock, and only then, if it is
// larger than any that it has accepted; else it grants the lock under a larger one. Where the answers
// differ, the nodes are raised to the largest, once, in a step that fails if the lock is no longer the
// attempt's. Only nodes that have the lock and the same token count towards the majority. Any two
// majorities have a node in common, which has accepted the tokens of both in the order in which it
// granted them the lock; so tokens rise, whatever the clocks say that they are made of. That argument, and what each
// step of it needs, is in docs/redlock-tokens.md. All clients have to use the same set of nodes, and it must not
// change while they run: majorities of two sets may have no node in common.
//
// Nodes remember tokens for a day, and accept none that is more than 12 hours ahead of their clock. A client whose clock
// is wrong by more gets the lock under the clocks of the nodes. A node whose clock is that far from the others' is outvoted.
//
// # What it is worth
//
// Martin Kleppmann, "How to do distributed locking" (2016), shows that the algorithm rests on time: a
// clock that jumps, or a holder that is paused past the TTL, makes two holders. Salvatore Sanfilippo's
// answer, "Is Redlock safe?" (2016), is that clocks need only run at about the same speed, and that time
// lost before the lock is granted is noticed. Both hold here. A holder that is paused later is what the
// fencing token is for: the resource must refuse the smaller one.
//
// So: one holder at a time, and tokens that rise, while clocks run at about the same speed and nodes
// remember. A node that restarts empty has forgotten who holds and which token came last. If that makes a
// second majority within one TTL, two may hold, and the order of their tokens then rests on the clocks
// that they were made of. Let Redis write its append-only file with fsync at every write, or keep a
// node that lost its data out of service. After one TTL, the longest in use, it makes no second holder any more. But it does not know
// the last tokens, and takes its clock for them: if a client's clock was ahead of it by more than the time that it was out of service, a
// smaller token may follow. To be sure of the order of tokens keep it out of service for 12 hours and a TTL.
//
// Each claim of the two texts is a test on five servers, named after it, in this package's claims_…_test.go:
// TestKleppmann_aClockJumpOnANodeOfABareMajorityMakesTwoHolders is true, and so is
// TestAntirez_aClockJumpOnOneNodeOfFiveMakesNoSecondHolder.
package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/newdriver"
	"github.com/go-locker/locker/internal/workers"
)

// New makes a Client whose locks are kept by a majority of the nodes, which from then on are the Client's. The TTL is 30 s
// unless [locker.WithTTL] says otherwise, and a node has the default of [NodeTimeout] to answer; for another there is
// [NewDriver]. New makes no request. It fails as NewDriver and [locker.New] do, and then the nodes are still the caller's.
func New(nodes []driver.Driver, opts ...locker.Option) (*locker.Client, error) {
	d, err := NewDriver(nodes)
	if err != nil {
		return nil, err
	}
	return locker.New(d, opts...) // where that fails d is not closed: nothing of its own runs yet, and it would close the nodes
}

// idlePerNode is how many workers a Driver keeps for each of its nodes, until they have had no call for a while.
const idlePerNode = 16

// Driver implements [driver.Driver], [driver.BatchExtender], [driver.Inspector], [driver.TTLChecker] and
// [driver.Warner] over nodes.
type Driver struct {
	nodes   []*node
	timeout time.Duration // of NodeTimeout; 0: by the TTL

	clock func() time.Time // what proposed tokens are made of

	// How votes are counted. Tests put other ways here, to show what they break.
	outcome func(*ballot) outcome
	raise   func(*ballot) []int

	workers *workers.Workers
	do      func(workers.Call) // theirs, unless a test says when requests and answers arrive

	open context.Context // ends when Close has waited for answers
	shut context.CancelFunc

	mu     sync.Mutex // guards what follows, and work against being added to after Close's Wait
	closed bool
	work   sync.WaitGroup // calls of our methods under way, and requests to nodes
}

var (
	_ driver.BatchExtender = (*Driver)(nil)
	_ driver.Inspector     = (*Driver)(nil)
	_ driver.Warner        = (*Driver)(nil)
	_ driver.TTLChecker    = (*Driver)(nil)
)

// DriverOption configures a [Driver].
type DriverOption func(*Driver) error

// NodeTimeout sets how long one node may take to answer one request. The default is TTL/10, and at most
// 500 ms: far below the TTL, however long that is, since it is also how long a Lock takes to fail when
// a majority hangs.
//
// An attempt takes up to two rounds of requests, one to take the lock and, where the nodes' tokens
// differ, one to raise them. What they may take together must leave more than half of the TTL to
// the holder, after the allowance for drift: 2 × NodeTimeout + TTL/100 + 2 ms < TTL/2. And it must not be more
// than TTL/7: a renewal is given TTL/6. A Client or Mutex whose TTL is too short for that is refused with an error that has
// the numbers, and matches [driver.ErrUnsupported]; with the default that is one below 7 ms. A d of 0 or less is an error of
// [NewDriver].
func NodeTimeout(d time.Duration) DriverOption {
	return func(driver *Driver) error {
		if d <= 0 {
			return fmt.Errorf("node time-out %v: must be above 0", d)
		}
		driver.timeout = d
		return nil
	}
}

// minNodes is where a majority first survives the loss of a node.
const minNodes = 3

// NewDriver makes a Driver over nodes, each a [driver.Proposer]; one that is none is [driver.ErrUnsupported]. There must be
// at least three, all of different addresses. They are then the Driver's: its Close closes them, and each of them the
// connections that it made itself. Fewer, two of one address, a nil among them, and an option that is not valid are errors. If NewDriver fails they are still the caller's.
func NewDriver(nodes []driver.Driver, opts ...DriverOption) (*Driver, error) {
	d := &Driver{
		clock: time.Now, outcome: (*ballot).outcome, raise: (*ballot).raise,
	}
	d.open, d.shut = context.WithCancel(context.Background())
	if err := newdriver.Apply(d, opts); err != nil {
		return nil, err
	}
	if len(nodes) < minNodes {
		return nil, newdriver.Refuse(fmt.Errorf("redlock needs at least %d nodes, and got %d", minNodes, len(nodes)))
	}
	for i, n := range nodes {
		if n == nil {
			return nil, newdriver.Refuse(fmt.Errorf("node %d is nil", i+1))
		}
		p, ok := n.(driver.Proposer)
		if !ok {
			return nil, newdriver.Refuse(fmt.Errorf("%w: node %d, a %T, cannot be a node of redlock: it is no driver.Proposer",
				driver.ErrUnsupported, i+1, n))
		}
		if err := d.add(p); err != nil {
			return nil, newdriver.Refuse(err)
		}
	}
	d.workers = workers.New(idlePerNode * len(d.nodes))
	d.do = d.workers.Do
	return d, nil
}

// add makes p the next node, unless it is one already.
func (d *Driver) add(p driver.Proposer) error {
	n := &node{Proposer: p, name: p.Address()}
	number := len(d.nodes) + 1
	for i, other := range d.nodes {
		same := reflect.TypeOf(p).Comparable() && other.Proposer == p
		if same || n.name != "" && strings.EqualFold(n.name, other.name) {
			return fmt.Errorf("nodes %d and %d are the same, %s: a majority of one server is none", i+1, number, cmp.Or(n.name, "one Driver"))
		}
	}
	if n.name == "" {
		n.name = fmt.Sprintf("node %d", number)
	}
	d.nodes = append(d.nodes, n)
	return nil
}

// Guarantees is what a majority of nodes promises.
func (d *Driver) Guarantees() driver.Guarantees {
	remember := driver.Promise{Level: driver.LevelConditional, Condition: "while clocks are sane, and nodes remember and evict no keys"}
	return driver.Guarantees{
		driver.Exclusive:      remember,
		driver.Failover:       remember,
		driver.Fencing:        remember,
		driver.FencingDurable: {Level: driver.LevelConditional, Condition: "while clocks are sane"},
		driver.Ordered:        {Level: driver.LevelNo, Condition: "each waiter polls"},
		driver.Woken:          {Level: driver.LevelNo, Condition: "each waiter polls"},
	}
}

// The default of NodeTimeout.
const (
	timeoutsPerTTL = 10
	longestTimeout = 500 * time.Millisecond
)

// nodeTimeout is how long a node has for each request about a lock of that TTL.
func (d *Driver) nodeTimeout(ttl time.Duration) time.Duration {
	if d.timeout > 0 {
		return d.timeout
	}
	return min(ttl/timeoutsPerTTL, longestTimeout)
}

const (
	rounds       = 2 // requests that an attempt makes one after the other: to take the lock, and to raise the token
	renewalShare = 7 // of the TTL: the core gives a renewal a sixth, in which what the nodes say has to be counted, too
)

// CheckTTL refuses a TTL that a node refuses, one of which an attempt may use up half, and one that a renewal may
// miss though the nodes answer in time.
func (d *Driver) CheckTTL(ttl time.Duration) error {
	for _, n := range d.nodes {
		if c, ok := n.Proposer.(driver.TTLChecker); ok {
			if err := c.CheckTTL(ttl); err != nil {
				return fmt.Errorf("%s: %w", n.name, err)
			}
		}
	}
	timeout, drift := d.nodeTimeout(ttl), ttl/100+2*time.Millisecond
	left := ttl - rounds*timeout - drift
	if left > ttl/2 && timeout <= ttl/renewalShare {
		return nil
	}
	return fmt.Errorf("%w: TTL %v with a node time-out of %v: an attempt may take %d × %v, and drift %v, "+
		"which leaves %v to the holder, and must leave more than half; a renewal leaves a node %v: %s",
		driver.ErrUnsupported, ttl, timeout, rounds, timeout, drift, left, ttl/renewalShare, d.advice(ttl))
}

// advice says which TTL would do, or which time-out.
func (d *Driver) advice(ttl time.Duration) string {
	if d.timeout == 0 { // a tenth of the TTL: 0.2 TTL + 0.01 TTL + 2 ms < 0.5 TTL
		return "use a TTL of at least 7ms"
	}
	// 2 × timeout + TTL/100 + 2 ms < TTL/2, hence TTL > (2 × timeout + 2 ms) / 0.49.
	longer := max((rounds*d.timeout+2*time.Millisecond)*100/49, renewalShare*d.timeout)
	advice := fmt.Sprintf("use a TTL of at least %v", (longer + time.Millisecond).Round(time.Millisecond))
	if shorter := min((ttl*49/100-2*time.Millisecond)/rounds, ttl/renewalShare); shorter > time.Millisecond {
		advice += fmt.Sprintf(", or a node time-out below %v", shorter.Round(time.Microsecond))
	}
	return advice
}

// Close ends what is under way, and closes the nodes. The requests that nobody waits for any more, as the
// releases at the nodes beyond a majority, it gives a moment to be answered: a node's time-out, and at
// most 500 ms.
func (d *Driver) Close() error {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	answered := make(chan struct{})
	go func() {
		d.work.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-time.After(min(cmp.Or(d.timeout, longestTimeout), longestTimeout)):
	}
	d.shut()
	errs := make([]error, len(d.nodes))
	var closing sync.WaitGroup
	for i, n := range d.nodes {
		closing.Go(func() {
			if err := n.Close(); err != nil {
				errs[i] = fmt.Errorf("%s: %w", n.name, err)
			}
		})
	}
	closing.Wait()
	<-answered
	d.workers.Close()
	return errors.Join(errs...)
}

// begin counts a call that Close waits for. Each success needs one d.work.Done.
func (d *Driver) begin() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return driver.ErrClosed
	}
	d.work.Add(1)
	return nil
}
