package driver

import "fmt"

// Guarantee is something a backend may promise of its locks.
type Guarantee string

// The guarantees that tell backends apart. Their values are what require=… takes in a URL.
const (
	// Exclusive: at most one holder at a time, while the backend's servers stay up.
	Exclusive Guarantee = "exclusive"
	// Failover: exclusive through the loss of a server, too.
	Failover Guarantee = "failover"
	// Fencing: the tokens of a name rise with every hold.
	Fencing Guarantee = "fencing"
	// FencingDurable: tokens rise through lost data, too.
	FencingDurable Guarantee = "fencing-durable"
	// Ordered: waiters are served first come, first served.
	Ordered Guarantee = "ordered"
	// Woken: waiters are woken by the backend; they need not poll.
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

// Promise is a backend's word on one guarantee.
type Promise struct {
	Level Level
	// Condition is, for a LevelConditional promise, what must hold for it, as in "while clocks are
	// sane"; for another it is a remark, or empty.
	Condition string
}

// String is the level, and the condition where there is one.
func (p Promise) String() string {
	if p.Condition == "" {
		return p.Level.String()
	}
	return fmt.Sprintf("%v: %s", p.Level, p.Condition)
}

// Guarantees is what a backend promises. What is missing from it is not promised.
type Guarantees map[Guarantee]Promise
