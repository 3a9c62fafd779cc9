package redlock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/quorum"
)

// node is one of the servers, with a circuit breaker.
type node struct {
	quorum.Node
	name string // its address, or else its number

	identified atomic.Bool // its server is known

	mu       sync.Mutex
	inFlight int
	silent   int // consecutive requests without a reply in time
}

// maxSilent is the number of consecutive requests without a reply after which a node gets one
// request at a time. If the client library ignores contexts, each of them keeps a goroutine and a
// connection.
const maxSilent = 8

// admit counts a request, or refuses it.
func (n *node) admit() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.silent >= maxSilent && n.inFlight > 0 {
		return fmt.Errorf("not asked: it has not answered the last %d requests", n.silent)
	}
	n.inFlight++
	return nil
}

// overdue counts a request that has not been answered in time.
func (n *node) overdue() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.silent++
}

// returned counts the end of an admitted request. An error that took nearly the time-out is no
// reply.
func (n *node) returned(err error, overdue, slow bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.inFlight--
	switch answered := err == nil || errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrLost); {
	case answered || !overdue && !slow:
		n.silent = 0
	case !overdue:
		n.silent++
	}
}

// identities are the servers behind the nodes.
type identities struct {
	known atomic.Bool           // a majority has been identified
	same  atomic.Pointer[error] // that two nodes are one server; nil: no two are known to be

	mu    sync.Mutex // guards nodes
	nodes map[string]*node
}

// identify learns the identity and the clock of every node before the first attempt to take a lock:
// two nodes on one server are refused, and queue positions are made of the nodes' clocks. It
// returns when each node has answered, failed or timed out, and after a third of what ctx leaves at
// the latest. The next attempt repeats it unless a majority has been identified.
func (d *backend) identify(ctx context.Context, ttl time.Duration) error {
	ids := &d.identities
	if ids.known.Load() {
		return ids.refusal()
	}
	longest := d.nodeTimeout(ttl)
	if deadline, ok := ctx.Deadline(); ok {
		longest = min(longest, time.Until(deadline)/3)
	}
	answers, err := poll(ctx, d, longest, d.nodes, func(ctx context.Context, n *node) (any, error) {
		return nil, ids.verify(ctx, n)
	}, nil)
	if err != nil {
		return err
	}
	refused := ids.refusal()
	ids.known.Store(countAnswers(answers) >= majority(len(d.nodes)) || refused != nil)
	return refused
}

// verify identifies n, unless that is done. Every node is verified before its first vote, also one
// that did not answer identify.
func (ids *identities) verify(ctx context.Context, n *node) error {
	if n.identified.Load() {
		return ids.refusal()
	}
	id, err := n.Identify(ctx)
	if err != nil {
		return err
	}
	ids.mu.Lock()
	defer ids.mu.Unlock()
	n.identified.Store(true)
	if other := ids.nodes[id]; id != "" && other != nil && other != n {
		err := fmt.Errorf("%w: the nodes %s and %s are one server: each node has to be a server of its own", driver.ErrUnsupported, other.name, n.name)
		ids.same.CompareAndSwap(nil, &err)
	}
	if ids.nodes == nil {
		ids.nodes = map[string]*node{}
	}
	ids.nodes[id] = n
	return ids.refusal()
}

// refusal returns an error if two nodes are one server.
func (ids *identities) refusal() error {
	if err := ids.same.Load(); err != nil {
		return *err
	}
	return nil
}
