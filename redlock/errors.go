package redlock

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-locker/locker/driver"
)

// Error tells why the nodes have not agreed, and what each of them said. [errors.As] finds it in
// the errors of a Client. It matches [driver.ErrHeld] if a majority of the nodes answers, and
// another owner has the lock. Otherwise it unwraps to the errors of the nodes that failed.
type Error struct {
	Votes []Vote // of each node, in their order

	held bool
}

// Vote tells what one node said.
type Vote struct {
	Node string // its address, or "node 2" if the Driver has none
	Err  error  // nil if it agreed
}

var (
	errWaiting   = errors.New("has not answered yet")
	errJoining   = errors.New("is asked for the lock")
	errAbsent    = errors.New("does not have the lock")
	errGivenBack = errors.New("granted the lock, and it was given back")
)

// disagreement returns an Error with the vote of each node.
func (d *backend) disagreement(vote func(i int) error) *Error {
	votes := make([]Vote, len(d.nodes))
	for i, n := range d.nodes {
		votes[i] = Vote{n.name, vote(i)}
	}
	return &Error{Votes: votes}
}

// Error returns the vote of each node in one line.
func (e *Error) Error() string {
	what := fmt.Sprintf("no majority of %d nodes", len(e.Votes))
	if e.held {
		what = driver.ErrHeld.Error()
	}
	votes := make([]string, len(e.Votes))
	for i, v := range e.Votes {
		votes[i] = v.String()
	}
	return what + ": " + strings.Join(votes, "; ")
}

// String returns the node and what it said.
func (v Vote) String() string {
	_, token := errors.AsType[heldUnder](v.Err)
	switch {
	case v.Err == nil:
		return v.Node + " agreed"
	case errors.Is(v.Err, driver.ErrHeld) && !token:
		return v.Node + ": held"
	case errors.Is(v.Err, driver.ErrLost):
		return v.Node + ": lost"
	default:
		return fmt.Sprintf("%s: %v", v.Node, v.Err)
	}
}

// Unwrap returns [driver.ErrHeld] if the Error matches it, and otherwise the errors of the nodes
// that failed. In the second case it leaves out what single nodes answered about the lock, such as
// ErrHeld. Otherwise errors.Is would take it for the answer of all nodes.
func (e *Error) Unwrap() []error {
	if e.held {
		return []error{driver.ErrHeld}
	}
	var failures []error
	for _, v := range e.Votes {
		says := func(verdict error) bool { return errors.Is(v.Err, verdict) }
		if !slices.ContainsFunc([]error{nil, driver.ErrHeld, driver.ErrLost, driver.ErrNotHeld}, says) {
			failures = append(failures, v.Err)
		}
	}
	return failures
}
