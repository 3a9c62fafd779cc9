package locker

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-locker/locker/driver"
)

// Guarantee is something a backend may promise of its locks.
type Guarantee = driver.Guarantee

// The guarantees that tell backends apart. Their values are what require=… takes in a URL.
const (
	// Exclusive promises at most one holder at a time, while the backend's servers stay up.
	Exclusive = driver.Exclusive
	// Failover promises at most one holder through the loss of a server, too.
	Failover = driver.Failover
	// Fencing promises that the tokens of a name rise with every hold.
	Fencing = driver.Fencing
	// FencingDurable promises that tokens go on rising even if the servers lose data.
	FencingDurable = driver.FencingDurable
	// Ordered promises that waiters get the lock in the order in which they came.
	Ordered = driver.Ordered
	// Woken promises that the backend wakes waiters, so that they need not poll.
	Woken = driver.Woken
)

var allGuarantees = []Guarantee{Exclusive, Failover, Fencing, FencingDurable, Ordered, Woken}

// Level is how firmly a guarantee is promised. The zero Level is LevelNo.
type Level = driver.Level

// The levels of a Promise.
const (
	LevelNo          = driver.LevelNo          // not promised
	LevelConditional = driver.LevelConditional // promised under the Promise's Condition
	LevelYes         = driver.LevelYes         // promised
)

// Promise says how firmly a backend promises one guarantee.
//
//	type Promise struct {
//		Level     Level
//		Condition string // what must hold for a conditional promise; else a remark, or empty
//	}
type Promise = driver.Promise

// Guarantees is what a backend promises. What is missing from it is not promised.
type Guarantees = driver.Guarantees

// unmet returns nil if each of required is promised without a condition, and otherwise an error
// that matches ErrUnsupported and has what is promised in place of each that is missing.
func unmet(g Guarantees, required []Guarantee) error {
	var missing []string
	for i, r := range required {
		if p := g[r]; p.Level != LevelYes && !slices.Contains(required[:i], r) {
			missing = append(missing, fmt.Sprintf("%q is %s", r, shortcoming(p)))
		}
	}
	if missing == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrUnsupported, strings.Join(missing, "; "))
}

// shortcoming returns what a promise that is not LevelYes lacks.
func shortcoming(p Promise) string {
	switch {
	case p.Level == LevelConditional && p.Condition != "":
		return "conditional: promised only " + p.Condition
	case p.Level == LevelConditional:
		return "conditional"
	case p.Condition != "":
		return "not promised: " + p.Condition
	default:
		return "not promised"
	}
}

func listGuarantees() string {
	names := make([]string, len(allGuarantees))
	for i, g := range allGuarantees {
		names[i] = string(g)
	}
	return strings.Join(names, ", ")
}
