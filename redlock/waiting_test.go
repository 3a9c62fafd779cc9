package redlock

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-locker/locker/internal/test/testwait"
)

// Where nothing goes wrong waiters are granted the lock in the order in which they came, whatever
// the clocks of the nodes show, and their own: all Drivers make places of the nodes' clocks. One
// that does not wait gets ahead of nobody.
func TestWaiting_isInOrderWhileNothingGoesWrong(t *testing.T) {
	grants := *flagGrants
	switch {
	case grants > 0:
	case testwait.Exhaustive():
		grants = 20_000
	default:
		grants = 2500
	}
	sum := simulateMany(t, *flagSeed, grants, relaxation{calm: true}, func(r result) bool { return r.bad()+r.overtaken > 0 })
	assert.Zero(t, sum.bad(), "out of order, overlap, or stalled")
	assert.Zero(t, sum.overtaken, "waiters of whom a later one was granted the lock before them")
	assert.Zero(t, sum.refused, "waiters who were told that no majority answers")
	assert.Less(t, sum.longest, calmWait)
}
