package redlock

import (
	"flag"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker/internal/test/testwait"
)

// A longer run: go test ./redlock -run Tokens -timeout 1h -v -redlock.grants=1000000
var (
	flagGrants  = flag.Int("redlock.grants", 0, "how many grants to simulate by the rule; 0: a few, and more in make nightly")
	flagRelaxed = flag.Int("redlock.relaxed", 0, "how many with each part of it left out; 0: until one is out of order")
	flagSeed    = flag.Uint64("redlock.seed", 1, "of the first history")
)

const grantsPerHistory = 250

// simulateMany runs histories until they have seen so many grants, or one was bad.
func simulateMany(t *testing.T, seed uint64, grants int, relax relaxation, bad func(result) bool) (sum result) {
	first := seed
	for ; sum.grants < grants && !bad(sum); seed++ {
		r := simulate(t, seed, grantsPerHistory, relax)
		if r.bad() > 0 {
			t.Logf("seed %d: %d out of order, %d overlap, %d stalled, %d overtaken", seed, r.disorder, r.overlaps, r.stalled, r.overtaken)
		}
		sum.add(r)
	}
	t.Logf("histories %d to %d: %+v", first, seed-1, sum)
	return sum
}

// bad returns how many promises were broken. One that is overtaken has no promise where something
// goes wrong.
func (r result) bad() int { return r.disorder + r.overlaps + r.stalled }

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
	{"one owner for all attempts", relaxation{oneOwner: true}, 1},
	{"votes for different tokens count together", relaxation{countTogether: true}, 2},
	{"nodes forget", relaxation{forget: true}, 2},
}

// The simulation bites. The last of these is not a part of the rule: nodes that forget break it
// whatever it is, and the package's documentation says so.
func TestTokens_breakWhenAPartOfTheRuleIsLeftOut(t *testing.T) {
	testwait.LeftToModels(t)
	for _, c := range relaxations {
		t.Run(c.name, func(t *testing.T) {
			grants, enough := 100_000, func(r result) bool { return r.bad() > 0 }
			if *flagRelaxed > 0 {
				grants, enough = *flagRelaxed, func(result) bool { return false }
			}
			sum := simulateMany(t, c.seed, grants, c.relax, enough)
			assert.Positive(t, sum.bad(), "violations in %d grants", sum.grants)
		})
	}
}

func TestTokens_aSeedIsOneHistory(t *testing.T) {
	testwait.LeftToModels(t)
	testwait.OnlyNightly(t, "it is for those who look for a history again, and the simulation without it")
	for _, relax := range []relaxation{{}, {oneOwner: true}} {
		first := simulate(t, *flagSeed, 100, relax)
		for range 2 {
			require.Equal(t, first, simulate(t, *flagSeed, 100, relax))
		}
		assert.NotEqual(t, first.digest, simulate(t, *flagSeed+1, 100, relax).digest)
	}
}
