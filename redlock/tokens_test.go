package redlock

import (
	"context"
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/test/claims"
	"github.com/go-locker/locker/internal/test/testwait"
)

// A longer run: go test ./redlock -run Tokens -timeout 1h -v -redlock.grants=1000000
var (
	flagGrants = flag.Int("redlock.grants", 0, "how many grants to simulate by the rule; 0: a few, and more in make nightly")
	flagSeed   = flag.Uint64("redlock.seed", 1, "of the first history")
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

const (
	// simPatience is how long a waiter of the simulation waits at most. By then a majority has
	// answered it many times.
	simPatience = 30 * time.Second

	calmDelay  = time.Millisecond       // of a message, at most, where nothing goes wrong
	calmMargin = 5 * time.Millisecond   // by which a waiter has to come later, to be sure of a later place
	calmWait   = 500 * time.Millisecond // of any of a few waiters, whose holds are of some milliseconds
)

// simWaiter is one wait under way.
type simWaiter struct {
	began  time.Time
	before []*simWaiter // those that have to be granted the lock before it
	over   bool
}

// waitResult is what waiters have seen.
type waitResult struct {
	waited    int           // grants to them
	stalled   int           // how often one was not granted the lock
	refused   int           // how often one was told that no majority answers
	overtaken int           // how often one was granted the lock before another that had been in the queues of a majority when it came
	longest   time.Duration // until a grant
	total     time.Duration // of all grants
}

func (r *waitResult) add(o waitResult) {
	r.waited += o.waited
	r.stalled += o.stalled
	r.refused += o.refused
	r.overtaken += o.overtaken
	r.longest = max(r.longest, o.longest)
	r.total += o.total
}

// drawWaits decides who waits, and what the servers' clocks show: in one of three histories nobody
// waits, and in one all do.
func (w *world) drawWaits() {
	r := w.rand(ofWaits)
	w.waits = []float64{0, 1, r.Float64()}[w.seed%3]
	for _, s := range w.servers {
		s.ahead = time.Duration((r.Float64() - 0.5) * float64(w.skews))
	}
	if w.relax.calm {
		w.waits, w.contenders = min(1, 0.5+r.Float64()), 3+r.IntN(4)
	}
}

// wait waits for the lock.
func (c *contender) wait() (driver.Lease, error) {
	w := c.w
	ctx, cancel := context.WithTimeout(w.ctx, simPatience)
	defer cancel()
	w.mu.Lock()
	me := w.begins()
	w.waiting[c.id] = me
	w.mu.Unlock()
	lease, err := claims.Wait(ctx, c.driver, simRequest, func(error) {})
	w.count(func(r *result) {
		me.over = true
		delete(w.waiting, c.id)
		switch {
		case err == nil:
			r.waited++
			r.longest = max(r.longest, time.Since(me.began))
			r.total += time.Since(me.began)
			w.comes(me)
		case w.ctx.Err() != nil:
		case ctx.Err() != nil:
			r.stalled++
		default:
			r.refused++
		}
	})
	return lease, err
}

// try tries once to take the lock.
func (c *contender) try() (driver.Lease, error) {
	w := c.w
	w.mu.Lock()
	me := w.begins()
	w.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), simTTL/2)
	defer cancel()
	lease, err := claims.Take(ctx, c.driver, simRequest)
	if err == nil {
		w.count(func(*result) { w.comes(me) })
	}
	return lease, err
}

// comes counts one that has overtaken another. The caller holds w.mu, as of begins.
func (w *world) comes(me *simWaiter) {
	if slices.ContainsFunc(me.before, func(o *simWaiter) bool { return !o.over }) {
		w.overtaken++
	}
}

// begins returns one that asks for the lock from now on.
func (w *world) begins() *simWaiter {
	me := &simWaiter{began: time.Now()}
	for other, o := range w.waiting {
		if me.began.Sub(o.began) > calmMargin && w.queuedAtMajority(other) {
			me.before = append(me.before, o)
		}
	}
	return me
}

// queuedAtMajority reports whether a contender is in the queues of a majority, or the lock is its
// or kept for it there.
func (w *world) queuedAtMajority(id int) bool {
	at := 0
	for _, s := range w.servers {
		s.mu.Lock()
		ours := func(e inQueue) bool { return e.owner>>32 == uint64(id+1) }
		if r := s.lock("x"); ours(r.kept) || ours(inQueue{owner: r.owner}) || slices.ContainsFunc(r.queue, ours) {
			at++
		}
		s.mu.Unlock()
	}
	return at >= majority(simNodes)
}
