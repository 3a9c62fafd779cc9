package redlock

import (
	"errors"
	"fmt"
	"strings"

	"github.com/go-locker/locker/driver"
)

// Error is why the nodes have not agreed, and what each of them said. It is reached by [errors.As] through
// the errors of a Client. It matches [driver.ErrHeld] if a majority answers and another has the
// lock; else it unwraps to the errors of those that failed.
type Error struct {
	Votes []Vote // of each node, in their order

	held bool
}

// Vote is what one node said.
type Vote struct {
	Node string // its address, or "node 2" where the Driver has none
	Err  error  // nil if it agreed
}

var (
	errWaiting = errors.New("has not answered yet")
	errJoining = errors.New("is asked for the lock")
	errAbsent  = errors.New("does not have the lock")
)

// heldUnder is what a node says to Inspect that has granted the lock, under this token.
type heldUnder uint64

func (token heldUnder) Error() string { return fmt.Sprintf("held under token %d", uint64(token)) }

// Is has the error pass for what it is.
func (heldUnder) Is(target error) bool { return target == driver.ErrHeld }

// Error is the vote of each node in one line.
func (e *Error) Error() string {
	var s strings.Builder
	if e.held {
		s.WriteString(driver.ErrHeld.Error())
	} else {
		fmt.Fprintf(&s, "no majority of %d nodes", len(e.Votes))
	}
	for i, v := range e.Votes {
		separator := "; "
		if i == 0 {
			separator = ": "
		}
		s.WriteString(separator + v.String())
	}
	return s.String()
}

// String is the node and what it said.
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

// Unwrap leaves out of an outage what nodes said of the lock: it would pass for the verdict of all.
func (e *Error) Unwrap() []error {
	if e.held {
		return []error{driver.ErrHeld}
	}
	var failures []error
	for _, v := range e.Votes {
		if v.Err != nil && !errors.Is(v.Err, driver.ErrHeld) && !errors.Is(v.Err, driver.ErrLost) && !errors.Is(v.Err, driver.ErrNotHeld) {
			failures = append(failures, v.Err)
		}
	}
	return failures
}
