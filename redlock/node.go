package redlock

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

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
