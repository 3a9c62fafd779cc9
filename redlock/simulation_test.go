package redlock

import (
	"context"
	"errors"
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
	"github.com/go-locker/locker/internal/test/testwait"
)

// A longer run: go test ./redlock -run Tokens -timeout 1h -v -redlock.grants=1000000
var (
	flagGrants = flag.Int("redlock.grants", 0, "how many grants to simulate by the rule; 0: a few, and more in make nightly")
	flagSeed   = flag.Uint64("redlock.seed", 1, "of the first history")
)

const grantsPerHistory = 250

// grantsOf returns how many grants to simulate, unless the command line says it.
func grantsOf(few, nightly int) int {
	switch {
	case *flagGrants > 0:
		return *flagGrants
	case testwait.Exhaustive():
		return nightly
	default:
		return few
	}
}

func TestTokens_riseByTheRule(t *testing.T) {
	sum := simulateMany(t, *flagSeed, grantsOf(250, 1500), relaxation{}, func(r result) bool { return r.bad() > 0 })
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
	sum := simulateMany(t, *flagSeed, grantsOf(2500, 20_000), relaxation{calm: true}, func(r result) bool { return r.bad()+r.overtaken > 0 })
	assert.Zero(t, sum.bad(), "out of order, overlap, or stalled")
	assert.Zero(t, sum.overtaken, "waiters of whom a later one was granted the lock before them")
	assert.Zero(t, sum.refused, "waiters who were told that no majority answers")
	assert.Less(t, sum.longest, calmWait)
}

// The simulation runs Clients over the Driver, as they are, and nodes that are models of the Lua
// scripts, in a synctest bubble: its time is virtual. What happens to a message is drawn from the
// seed and the message's own name, whatever the order in which goroutines run; so a seed stands for
// one history.

// relaxation is one part of the rule left out.
type relaxation struct {
	oneOwner      bool // for all attempts of a contender
	countTogether bool // votes for different tokens
	forget        bool // nodes come back empty
	calm          bool // it is none: nothing goes wrong, and all wait
}

const (
	simTTL      = 100 * time.Millisecond
	simTimeout  = 13*time.Millisecond + 370041 // no backoff of the Driver ends with it, in some order or other
	simNodes    = 3
	simName     = "locker:x"       // at the nodes
	simPatience = 30 * time.Second // of a waiter; by then a majority has answered it many times

	calmDelay  = time.Millisecond       // of a message, at most, where nothing goes wrong
	calmMargin = 5 * time.Millisecond   // by which a waiter has to come later, to be sure of a later place
	calmWait   = 500 * time.Millisecond // of any of a few waiters, whose holds are of some milliseconds
)

// world is one history.
type world struct {
	seed       uint64
	relax      relaxation
	servers    []*stage
	contenders int
	want       int           // grants in the result
	pause      time.Duration // between attempts, on average
	holds      time.Duration // how long, on average
	skews      time.Duration // by how much, at most
	storm      float64       // how likely it is that a message, or an answer, is lost, doubled, or very late
	slow       float64       // how likely it is that it takes about as long as a node may
	waits      float64       // how likely it is that an attempt waits
	ctx        context.Context
	stop       context.CancelFunc

	mu      sync.Mutex
	holders map[int]*locker.Hold // by contender
	largest uint64
	waiting map[int]*simAttempt // by contender
	*result
}

// simAttempt is an attempt to take the lock.
type simAttempt struct {
	began  time.Time
	before []*simAttempt // those that have to be granted the lock before it
	over   bool
}

// result is what worlds have seen.
type result struct {
	grants, disorder, overlaps int
	attempts, extended, lost   int
	waited                     int           // grants to waiters
	stalled                    int           // how often a waiter was not granted the lock within simPatience
	refused                    int           // how often one was told that no majority answers
	overtaken                  int           // how often a grant went past one who had been in the queues of a majority when the other came
	longest                    time.Duration // until a grant to a waiter
}

// bad returns how many promises were broken. One that is overtaken has no promise where something
// goes wrong.
func (r *result) bad() int { return r.disorder + r.overlaps + r.stalled }

// simulate runs a history until it has seen grantsPerHistory, and adds to sum what it sees.
func simulate(t *testing.T, seed uint64, relax relaxation, sum *result) {
	defer func() { clock.Random = rand.N[time.Duration] }()
	synctest.Test(t, func(t *testing.T) {
		w := &world{
			seed: seed, relax: relax, want: sum.grants + grantsPerHistory, result: sum,
			holders: map[int]*locker.Hold{}, waiting: map[int]*simAttempt{},
		}
		w.ctx, w.stop = context.WithCancel(context.Background())
		var drawn atomic.Uint64
		clock.Random = func(n time.Duration) time.Duration {
			return time.Duration(w.rand(ofPauses, drawn.Add(1)).Int64N(int64(n)))
		}
		r := w.rand(ofWorld)
		w.contenders = 2 + r.IntN(3)
		w.pause = time.Duration(2+r.IntN(20)) * time.Millisecond
		w.holds = time.Duration(100+r.IntN(5000)) * time.Microsecond
		w.skews = time.Duration(1+r.IntN(30)) * time.Millisecond
		if r.IntN(3) == 0 {
			w.skews = 10 * time.Second
		}
		w.storm = 0.001 * math.Pow(50, r.Float64()) // to one in twenty
		w.slow = 0.01 * math.Pow(50, r.Float64())   // to one in two
		w.waits = []float64{0, 1, r.Float64()}[seed%3]
		if relax.calm {
			w.waits, w.contenders = min(1, 0.5+r.Float64()), 3+r.IntN(4)
		}
		w.servers = newStages(simNodes)
		var all sync.WaitGroup
		for i, s := range w.servers {
			s.rate = 1 + (r.Float64()-0.5)/100
			s.ahead = time.Duration((r.Float64() - 0.5) * float64(w.skews))
			if !relax.calm {
				all.Go(func() { w.restarts(i) })
			}
		}
		for id := range w.contenders {
			all.Go(func() { w.contend(id) })
		}
		all.Wait()
		w.servers[0].network.Wait()
	})
}

// simulateMany runs histories until they have seen so many grants, or the last was bad.
func simulateMany(t *testing.T, seed uint64, grants int, relax relaxation, bad func(result) bool) (sum result) {
	first := seed
	for ; sum.grants < grants && !bad(sum); seed++ {
		simulate(t, seed, relax, &sum)
	}
	t.Logf("histories %d to %d: %+v", first, seed-1, sum)
	return sum
}

// What randomness is for: the name of a source is one of these and numbers.
const (
	ofWorld = uint64(verbs) + iota // before them are those of requests
	ofRestarts
	ofContender
	ofMessage
	ofPauses
	ofLooks
)

// rand is a source that depends on the seed and on its name.
func (w *world) rand(name ...uint64) *rand.Rand {
	var digest uint64
	for _, v := range name {
		digest = (digest ^ v) * 0x9e3779b97f4a7c15
		digest ^= digest >> 29
		digest *= 0xbf58476d1ce4e5b9
		digest ^= digest >> 32
	}
	return rand.New(rand.NewPCG(w.seed, digest))
}

// draw decides what happens to one message and its answer.
func (w *world) draw(r *rand.Rand) path {
	delay := func() time.Duration {
		switch {
		case r.Float64() < w.storm/2: // later than everything
			return time.Duration(r.Int64N(int64(3 * simTTL)))
		case r.Float64() < w.slow: // about as long as a node may take
			return time.Duration(r.Int64N(int64(2 * simTimeout)))
		default:
			return time.Duration((0.1 + r.ExpFloat64()) * float64(time.Millisecond))
		}
	}
	if w.relax.calm {
		short := func() time.Duration { return time.Duration(100_000 + r.Int64N(int64(calmDelay)-100_000)) }
		return path{there: short(), back: short()}
	}
	p := path{there: delay(), back: delay(), heedless: r.IntN(2) == 0, late: time.Duration(1 + r.IntN(1000))}
	if p.heedless {
		p.patience = simTimeout + time.Duration(r.Int64N(int64(simTTL)))
	}
	if r.Float64() < w.storm {
		p.lost = r.IntN(2) == 0
		p.mute = !p.lost
	}
	if r.Float64() < w.storm {
		p.double = delay()
	}
	return p
}

// restarts has a server go down and come back.
func (w *world) restarts(i int) {
	r := w.rand(ofRestarts, uint64(i))
	s := w.servers[i]
	for w.ctx.Err() == nil {
		w.sleep(time.Duration(r.ExpFloat64() * float64(2*time.Second)))
		s.mu.Lock()
		s.down = true
		s.mu.Unlock()
		w.sleep(time.Duration(r.ExpFloat64() * float64(50*time.Millisecond)))
		s.mu.Lock()
		s.down = false
		if w.relax.forget {
			s.lock(simName).forget()
		} else if r.IntN(2) == 0 {
			s.lock(simName).queue = nil
		}
		s.mu.Unlock()
	}
}

// sleep ends early with the history.
func (w *world) sleep(d time.Duration) { _ = clock.Sleep(w.ctx, d) }

// contend has a process, whose clock jumps now and then, take and release the lock.
func (w *world) contend(id int) {
	nodes := make([]driver.Driver, simNodes)
	for i, s := range w.servers {
		nodes[i] = &stageClient{
			stage: s, id: uint64(id + 1), oneOwner: w.relax.oneOwner, noRaise: w.relax.countTogether,
			draws: func(what, attempt, number uint64) path {
				return w.draw(w.rand(what, uint64(id), uint64(i), attempt, number))
			},
		}
	}
	made, err := NewDriver(nodes, NodeTimeout(simTimeout))
	if err != nil {
		panic(err)
	}
	d, r := made.(*backend), w.rand(ofContender, uint64(id))
	var skew atomic.Int64 // of its clock
	d.clock = func() time.Time { return time.Now().Add(time.Duration(skew.Load())) }
	var drawn atomic.Uint64
	d.random = func(n int64) int64 { return w.rand(ofLooks, uint64(id), drawn.Add(1)).Int64N(n) }
	opts := []locker.Option{locker.WithTTL(simTTL)}
	if r.IntN(2) == 0 {
		opts = append(opts, locker.WithoutRenewal())
	}
	c, err := locker.New(d, opts...)
	if err != nil {
		panic(err)
	}
	m := c.Mutex("x")
	for w.ctx.Err() == nil {
		if r.IntN(8) == 0 {
			skew.Store(int64((r.Float64() - 0.5) * float64(w.skews)))
		}
		if h := w.attempt(id, m, r); h != nil {
			w.hold(id, h, r)
		}
		w.sleep(time.Duration(r.ExpFloat64() * float64(w.pause)))
	}
	_ = c.Close() // a release that no majority has answered is an error
}

// attempt tries once to take the lock, or waits for it.
func (w *world) attempt(id int, m *locker.Mutex, r *rand.Rand) *locker.Hold {
	waits := w.waits > 0 && r.Float64() < w.waits
	patience, acquire := simTTL/2, m.TryAcquire
	if waits {
		patience, acquire = simPatience, m.Acquire
	}
	ctx, cancel := context.WithTimeout(w.ctx, patience)
	defer cancel()
	w.mu.Lock()
	me := &simAttempt{began: time.Now()}
	for other, o := range w.waiting {
		if me.began.Sub(o.began) > calmMargin && w.queuedAtMajority(other) {
			me.before = append(me.before, o)
		}
	}
	if waits {
		w.waiting[id] = me
	}
	w.mu.Unlock()
	h, err := acquire(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts++
	delete(w.waiting, id)
	me.over = true
	switch {
	case err == nil:
		w.granted(id, h, me, waits)
	case w.ctx.Err() != nil, !waits:
	case ctx.Err() != nil:
		w.stalled++
	default:
		w.refused++
	}
	return h
}

// granted checks a grant. The caller holds w.mu.
func (w *world) granted(id int, h *locker.Hold, me *simAttempt, waited bool) {
	if h.Token() <= w.largest {
		w.disorder++
	}
	w.largest = max(w.largest, h.Token())
	if slices.ContainsFunc(me.before, func(o *simAttempt) bool { return !o.over }) {
		w.overtaken++
	}
	for _, other := range w.holders {
		if other.Err() == nil {
			w.overlaps++
		}
	}
	if waited {
		w.waited++
		w.longest = max(w.longest, time.Since(me.began))
	}
	w.holders[id] = h
	if w.grants++; w.grants == w.want {
		w.stop()
	}
}

// queuedAtMajority reports whether a contender is in the queues of a majority, or the lock is its
// or kept for it there.
func (w *world) queuedAtMajority(id int) bool {
	at := 0
	for _, s := range w.servers {
		s.mu.Lock()
		ours := func(e inQueue) bool { return e.owner>>32 == uint64(id+1) }
		if r := s.lock(simName); ours(r.kept) || ours(inQueue{owner: r.owner}) || slices.ContainsFunc(r.queue, ours) {
			at++
		}
		s.mu.Unlock()
	}
	return at >= majority(simNodes)
}

// hold works under a hold for a while, and ends it in one of several ways.
func (w *world) hold(id int, h *locker.Hold, r *rand.Rand) {
	deadline, lasts := h.Deadline(), time.Duration(r.ExpFloat64()*float64(w.holds))
	if !w.relax.calm && r.IntN(12) == 0 {
		lasts = time.Duration(r.Int64N(int64(2 * simTTL))) // past the deadline, too
	}
	time.Sleep(lasts)
	if r.IntN(6) == 0 {
		_ = h.Extend(context.Background())
	}
	w.mu.Lock()
	delete(w.holders, id)
	if h.Deadline().After(deadline) {
		w.extended++
	}
	w.mu.Unlock()
	if !w.relax.calm && r.IntN(80) == 0 {
		_ = h.Abandon() // the process ends
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), simTTL/4)
	defer cancel()
	if errors.Is(h.Unlock(ctx), locker.ErrLost) {
		w.mu.Lock()
		w.lost++
		w.mu.Unlock()
	}
}
