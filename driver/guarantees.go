package driver

import "fmt"

// Guarantee is something a backend may promise of its locks.
type Guarantee string

// The guarantees that tell backends apart. Their values are what require=… takes in a URL.
const (
	// Exclusive promises at most one holder at a time, while the backend's servers stay up.
	Exclusive Guarantee = "exclusive"
	// Failover promises at most one holder through the loss of a server, too.
	Failover Guarantee = "failover"
	// Fencing promises that the tokens of a name rise with every hold.
	Fencing Guarantee = "fencing"
	// FencingDurable promises that tokens go on rising even if the servers lose data.
	FencingDurable Guarantee = "fencing-durable"
	// Ordered promises that waiters get the lock in the order in which they came.
	Ordered Guarantee = "ordered"
	// Woken promises that the backend wakes waiters, so that they need not poll.
	Woken Guarantee = "woken"
)

// Level is how firmly a guarantee is promised. The zero Level is LevelNo.
type Level int

// The levels of a Promise.
const (
	LevelNo          Level = iota // not promised
	LevelConditional              // promised under the Promise's Condition
	LevelYes                      // promised
)

// String returns no, conditional or yes.
func (l Level) String() string {
	switch l {
	case LevelYes:
		return "yes"
	case LevelConditional:
		return "conditional"
	default:
		return "no"
	}
}

// Promise says how firmly a backend promises one guarantee.
type Promise struct {
	Level Level
	// Condition is what must hold for a LevelConditional promise, as in "while clocks are sane".
	// For another Level it is a remark, or empty.
	Condition string
}

// String returns the level, and the condition if there is one.
func (p Promise) String() string {
	if p.Condition == "" {
		return p.Level.String()
	}
	return fmt.Sprintf("%v: %s", p.Level, p.Condition)
}

// Guarantees is what a backend promises. What is missing from it is not promised.
type Guarantees map[Guarantee]Promise
