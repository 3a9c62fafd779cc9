package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	do      func(workers.Call) // of workers

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
	d.do = d.workers.Do
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
