package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/adapter"
	"github.com/go-locker/locker/internal/quorum"
	"github.com/go-locker/locker/internal/workers"
)

// New makes a Client whose locks are kept by a majority of the nodes, which from then on are the
// Client's. The TTL is 30 s unless [locker.WithTTL] says otherwise. Each node has the default of
// [NodeTimeout] to answer; for another time-out use [NewDriver]. New makes no request. It fails as
// NewDriver and [locker.New] do, and then the nodes are still the caller's.
func New(nodes []driver.Driver, opts ...locker.Option) (*locker.Client, error) {
	d, err := NewDriver(nodes)
	if err != nil {
		return nil, err
	}
	return locker.New(d, opts...) // on failure d is not closed: it has no goroutine yet, and would close the nodes
}

// idlePerNode is the number of idle workers that a Driver keeps for each node for a while.
const idlePerNode = 16

// backend is the Driver.
type backend struct {
	nodes   []*node
	timeout time.Duration // of NodeTimeout; 0: by the TTL

	clock  func() time.Time    // of proposed tokens; a test may set it
	random func(n int64) int64 // [rand.Int64N]; a test may set it

	workers *workers.Workers

	open context.Context // canceled when Close has waited for replies
	shut context.CancelFunc

	mu     sync.Mutex // guards closed, and work against an Add after Close's Wait
	closed bool
	work   sync.WaitGroup // method calls and requests in flight

	identities identities
}

var (
	_ driver.Driver        = (*backend)(nil)
	_ driver.BatchExtender = (*backend)(nil)
	_ driver.Operator      = (*backend)(nil)
	_ driver.Warner        = (*backend)(nil)
	_ driver.TTLChecker    = (*backend)(nil)
)

// DriverOption configures a [Driver].
type DriverOption func(*backend) error

// minNodes is the smallest number of nodes whose majority survives the loss of one.
const minNodes = 3

// NewDriver makes a Driver over nodes, each a Driver of package redis or redigo; others are
// [driver.ErrUnsupported]. There must be at least three, all of different addresses. Fewer than
// three nodes, two nodes with one address, a nil node, and an option that is not valid are errors.
// From then on the nodes belong to the Driver: its Close closes them. A node closes only the
// connections that it has made itself. If NewDriver fails, the nodes still belong to the caller.
func NewDriver(nodes []driver.Driver, opts ...DriverOption) (driver.Driver, error) {
	d := &backend{clock: time.Now, random: rand.Int64N}
	d.open, d.shut = context.WithCancel(context.Background())
	if err := adapter.Apply(d, opts); err != nil {
		return nil, err
	}
	if len(nodes) < minNodes {
		return nil, adapter.Refuse(fmt.Errorf("redlock needs at least %d nodes, and got %d", minNodes, len(nodes)))
	}
	for _, n := range nodes {
		if err := d.addNode(n); err != nil {
			return nil, adapter.Refuse(err)
		}
	}
	d.workers = workers.New(idlePerNode * len(d.nodes))
	return d, nil
}

// addNode appends n, unless it cannot be a node, or is one already.
func (d *backend) addNode(n driver.Driver) error {
	number := len(d.nodes) + 1
	if n == nil {
		return fmt.Errorf("node %d is nil", number)
	}
	p, ok := n.(quorum.Node)
	if !ok {
		return fmt.Errorf("%w: node %d, a %T, cannot be a node of redlock: use those of packages redis and redigo", driver.ErrUnsupported, number, n)
	}
	addr := p.Address()
	for i, other := range d.nodes {
		same := reflect.TypeOf(p).Comparable() && other.Node == p
		if same || addr != "" && strings.EqualFold(addr, other.name) {
			return fmt.Errorf("nodes %d and %d are the same, %s: each node has to be a server of its own", i+1, number, cmp.Or(addr, "one Driver"))
		}
	}
	d.nodes = append(d.nodes, &node{Node: p, name: cmp.Or(addr, fmt.Sprintf("node %d", number))})
	return nil
}

// Guarantees returns what a majority of nodes promises.
func (d *backend) Guarantees() driver.Guarantees {
	remember := driver.Promise{Level: driver.LevelConditional, Condition: "while clocks are sane, and nodes keep their data and evict no keys"}
	return driver.Guarantees{
		driver.Exclusive:      remember,
		driver.Failover:       remember,
		driver.Fencing:        remember,
		driver.FencingDurable: {Level: driver.LevelConditional, Condition: "while clocks are sane"},
		driver.Ordered:        {Level: driver.LevelConditional, Condition: "while the waiters' subscriptions do not break, and nodes answer and keep their data"},
		driver.Woken:          {Level: driver.LevelYes},
	}
}

// Close ends what is under way, and closes the nodes. A call returns when a majority has answered,
// so requests to the other nodes, such as releases, may still be open. Before Close closes the
// nodes, it waits for these answers: for one node time-out, and at most 500 ms.
func (d *backend) Close() error {
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

// begin registers a call that Close waits for. Each success needs one d.work.Done.
func (d *backend) begin() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return driver.ErrClosed
	}
	d.work.Add(1)
	return nil
}

// NodeTimeout sets how long one node may take to answer one request. The default is TTL/10, and at
// most 500 ms. It is far below the TTL, because an attempt lasts for one NodeTimeout if a majority
// hangs.
//
// An attempt takes up to two rounds of requests, one to take the lock and, where the nodes' tokens
// differ, one to raise them. Two rounds and the allowance for drift together must last less than
// half of the TTL: 2 × NodeTimeout + TTL/100 + 2 ms < TTL/2. And NodeTimeout must not be more than
// TTL/7, because a renewal is sent again after TTL/6. A Client or Mutex whose TTL is too short for
// that is refused with an error that has the numbers, and matches [driver.ErrUnsupported]; with the
// default time-out, this is a TTL below 7 ms. A d of 0 or less is an error of [NewDriver].
func NodeTimeout(d time.Duration) DriverOption {
	return func(driver *backend) error {
		if d <= 0 {
			return fmt.Errorf("node time-out %v: must be above 0", d)
		}
		driver.timeout = d
		return nil
	}
}

const (
	timeoutsPerTTL = 10                     // the default of NodeTimeout
	longestTimeout = 500 * time.Millisecond // and the most that it is
	shortestTTL    = "7ms"                  // with the default: 0.2 TTL + 0.01 TTL + 2 ms < 0.5 TTL

	rounds       = 2 // requests that an attempt makes one after the other: to take the lock, and to raise the token
	renewalShare = 7 // of the TTL: the core gives a renewal a sixth, in which what the nodes say has to be counted, too
)

// nodeTimeout returns how long a node has for each request about a lock of that TTL.
func (d *backend) nodeTimeout(ttl time.Duration) time.Duration {
	if d.timeout > 0 {
		return d.timeout
	}
	return min(ttl/timeoutsPerTTL, longestTimeout)
}

// CheckTTL refuses a TTL that a node refuses, and one that is too short for the node time-out: an
// attempt could use up half of it, or a renewal could come too late although the nodes answer in
// time. See [NodeTimeout].
func (d *backend) CheckTTL(ttl time.Duration) error {
	for _, n := range d.nodes {
		if err := n.CheckTTL(ttl); err != nil {
			return fmt.Errorf("%s: %w", n.name, err)
		}
	}
	timeout, drift := d.nodeTimeout(ttl), ttl/100+2*time.Millisecond
	left := ttl - rounds*timeout - drift
	if left > ttl/2 && timeout <= ttl/renewalShare {
		return nil
	}
	advice := "use a TTL of at least " + shortestTTL
	if set := d.timeout; set > 0 {
		// 2 × timeout + TTL/100 + 2 ms < TTL/2, hence TTL > (2 × timeout + 2 ms) / 0.49.
		longer := max((rounds*set+2*time.Millisecond)*100/49, renewalShare*set)
		advice = fmt.Sprintf("use a TTL of at least %v", (longer + time.Millisecond).Round(time.Millisecond))
		if shorter := min((ttl*49/100-2*time.Millisecond)/rounds, ttl/renewalShare); shorter > time.Millisecond {
			advice += fmt.Sprintf(", or a node time-out below %v", shorter.Round(time.Microsecond))
		}
	}
	return fmt.Errorf("%w: TTL %v with a node time-out of %v: an attempt may take %d × %v, and drift %v, "+
		"which leaves %v to the holder, and must leave more than half; a renewal leaves a node %v: %s",
		driver.ErrUnsupported, ttl, timeout, rounds, timeout, drift, left, ttl/renewalShare, advice)
}

// DefaultTTL leaves the default to the core.
func (d *backend) DefaultTTL() time.Duration { return 0 }

func init() {
	driver.Register("redlock", open)
}

// open makes a node of each host, by the scheme that the parameter driver names. Every other
// parameter that is not redlock's own goes to each of them.
func open(ctx context.Context, u *driver.URL) (_ driver.Driver, err error) {
	var timeout time.Duration
	if err := adapter.Duration(u, "node_timeout", &timeout); err != nil {
		return nil, err
	}
	scheme, ok := u.Take("driver")
	if !ok {
		scheme = "redis"
	}
	if scheme == u.Scheme {
		return nil, fmt.Errorf("parameter driver=%s: a node cannot be a quorum of nodes", scheme)
	}
	var nodes []driver.Driver
	defer func() {
		if err != nil {
			for _, n := range nodes {
				_ = n.Close()
			}
		}
	}()
	left := u.Query
	for i, host := range u.Hosts {
		own := *u
		own.Scheme, own.Hosts, own.Query = scheme, []string{host}, maps.Clone(u.Query)
		n, err := driver.Open(ctx, &own)
		if err == nil {
			nodes = append(nodes, n)
			if p, ok := n.(quorum.Node); ok && p.Address() == "" {
				// It is found through others: all sentinels, and all nodes of a Cluster, lead to
				// the same servers.
				err = errors.New("it is not one server of a known address, as a node has to be: master_name and cluster are not for redlock")
			}
		}
		if err != nil {
			return nil, fmt.Errorf("node %d of %d, by driver=%s: %w", i+1, len(u.Hosts), scheme, err)
		}
		left = own.Query
	}
	made, err := NewDriver(nodes)
	if err != nil {
		return nil, err
	}
	d := made.(*backend)
	d.timeout, u.Query = timeout, left
	return d, nil
}
