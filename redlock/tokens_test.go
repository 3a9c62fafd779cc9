package redlock

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/go-locker/locker/internal/test/testwait"
)

// A longer run: go test ./redlock -run Tokens -timeout 1h -v -redlock.grants=1000000
var (
	flagGrants = flag.Int("redlock.grants", 0, "how many grants to simulate by the rule; 0: a few, and more in make nightly")
	flagSeed   = flag.Uint64("redlock.seed", 1, "of the first history")
)

const grantsPerHistory = 250

func TestTokens_riseByTheRule(t *testing.T) {
	grants := *flagGrants
	switch {
	case grants > 0:
	case testwait.Exhaustive():
		grants = 1500
	default:
		grants = 250
	}
	sum := simulateMany(t, *flagSeed, grants, relaxation{}, func(r result) bool { return r.bad() > 0 })
	assert.Zero(t, sum.disorder, "grants whose token is not larger than all before")
	assert.Zero(t, sum.overlaps, "grants while another held")
	assert.Zero(t, sum.stalled, "waiters who were not granted the lock within %v", simPatience)
	assert.Positive(t, sum.waited)
	assert.Positive(t, sum.extended)
}

// relaxations are parts of the rule that are left out, and for each a seed of a history that shows
// what breaks. Seeds stand for other histories once the Driver sends other requests: the test then
// takes longer to find one, and says which it was.
var relaxations = []struct {
	name  string
	relax relaxation
	seed  uint64
}{
	{"one owner for all attempts", relaxation{oneOwner: true}, 2},
	{"votes for different tokens count together", relaxation{countTogether: true}, 3},
	{"nodes forget", relaxation{forget: true}, 4},
}

// The simulation bites. The last of these is not a part of the rule: nodes that forget break it
// whatever it is, and the package's documentation says so.
func TestTokens_breakWhenAPartOfTheRuleIsLeftOut(t *testing.T) {
	testwait.LeftToModels(t)
	for _, c := range relaxations {
		t.Run(c.name, func(t *testing.T) {
			sum := simulateMany(t, c.seed, 100_000, c.relax, func(r result) bool { return r.bad() > 0 })
			assert.Positive(t, sum.bad(), "violations in %d grants", sum.grants)
		})
	}
}

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
