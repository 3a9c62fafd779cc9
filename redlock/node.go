package redlock

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/quorum"
)

// node is one of the servers, and what is known of its health.
type node struct {
	quorum.Node
	name string // its address, or else its number

	identified atomic.Bool // it has said who it is

	mu       sync.Mutex
	inFlight int
	silent   int // requests in a row that were not answered in time
}

// patience is after how many unanswered requests in a row a node is asked by one at a time. If the
// client library ignores contexts, each of them keeps a goroutine and a connection.
const patience = 8

// admit counts a request, or refuses it.
func (n *node) admit() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.silent >= patience && n.inFlight > 0 {
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

// returned counts a request that was admitted and has ended. An error that took its time is no
// answer.
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
