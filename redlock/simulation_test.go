package redlock

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// The simulation runs the Driver, as it is, over nodes that are models of the Lua scripts, in a
// synctest bubble: its time is virtual. What happens to a message is drawn from the seed and the
// message's own name, whatever the order in which goroutines run; so a seed stands for one history.

// relaxation is one part of the rule left out.
type relaxation struct {
	oneOwner      bool // for all attempts of a contender
	countTogether bool // votes for different tokens
	forget        bool // nodes come back empty
	calm          bool // it is none: nothing goes wrong, and all wait
}

const (
	simTTL     = 100 * time.Millisecond
	simTimeout = 13*time.Millisecond + 370041 // no pause of the Driver ends with it, in some order or other
	simNodes   = 3
)

var simRequest = driver.Request{Name: "x", TTL: simTTL}

// world is one history.
type world struct {
	seed       uint64
	relax      relaxation
	servers    []*stage
	contenders int
	want       int           // grants
	pause      time.Duration // between attempts, on average
	holds      time.Duration // how long, on average
	skews      time.Duration // by how much, at most
	storm      float64       // how likely it is that a message, or an answer, is lost, doubled, or very late
	slow       float64       // how likely it is that it takes about as long as a node may
	waits      float64       // how likely it is that an attempt waits
	ctx        context.Context
	stop       context.CancelFunc

	mu      sync.Mutex
	holders map[int]time.Time // by contender: deadline of its hold
	largest uint64
	waiting map[int]*simWaiter // by contender
	result
}

// result is what a world has seen.
type result struct {
	grants, disorder, overlaps int
	attempts, extended, lost   int
	waitResult
	digest uint64 // of the grants, in their order
}

func (r *result) add(o result) {
	r.grants += o.grants
	r.disorder += o.disorder
	r.overlaps += o.overlaps
	r.attempts += o.attempts
	r.extended += o.extended
	r.lost += o.lost
	r.waitResult.add(o.waitResult)
	r.digest = digestOf(r.digest, o.digest)
}

// simulate runs a history until it has seen so many grants.
func simulate(t *testing.T, seed uint64, grants int, relax relaxation) result {
	var w *world
	synctest.Test(t, func(t *testing.T) {
		w = &world{seed: seed, relax: relax, want: grants, holders: map[int]time.Time{}, waiting: map[int]*simWaiter{}}
		w.ctx, w.stop = context.WithCancel(context.Background())
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
		w.servers = newStages(simNodes)
		for _, s := range w.servers {
			s.rate = 1 + (r.Float64()-0.5)/100
		}
		w.drawWaits()
		var wg sync.WaitGroup
		for i := range w.servers {
			if relax.calm {
				continue
			}
			wg.Go(func() { w.restarts(i) })
		}
		for c := range w.contenders {
			wg.Go(func() { w.contend(c) })
		}
		wg.Wait()
		w.servers[0].network.Wait()
	})
	return w.result
}

// What randomness is for: the name of a source is one of these and numbers.
const (
	ofWorld = uint64(verbs) + iota // before them are those of requests
	ofRestarts
	ofContender
	ofMessage
	ofWaits
	ofLooks
)

// rand is a source that depends on the seed and on its name.
func (w *world) rand(name ...uint64) *rand.Rand {
	return rand.New(rand.NewPCG(w.seed, digestOf(0, name...)))
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
			s.lock("x").forget()
		} else if r.IntN(2) == 0 {
			s.lock("x").queue = nil
		}
		s.mu.Unlock()
	}
}

// sleep ends early with the history.
func (w *world) sleep(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.ctx.Done():
	}
}

// contender is a process that wants the lock.
type contender struct {
	w      *world
	id     int
	driver *backend
	r      *rand.Rand
	skew   atomic.Int64 // of its clock, in nanoseconds
}

func (w *world) contend(id int) {
	c := &contender{w: w, id: id, r: w.rand(ofContender, uint64(id))}
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
	d := made.(*backend)
	c.driver = d
	d.clock = func() time.Time { return time.Now().Add(time.Duration(c.skew.Load())) }
	var drawn atomic.Uint64
	d.random = func(n int64) int64 { return w.rand(ofLooks, uint64(id), drawn.Add(1)).Int64N(n) }
	var cleaning sync.WaitGroup
	for w.ctx.Err() == nil {
		c.skewClock()
		c.attempt(&cleaning)
		w.sleep(time.Duration(c.r.ExpFloat64() * float64(w.pause)))
	}
	cleaning.Wait()
	if err := d.Close(); err != nil {
		panic(err)
	}
}

// skewClock has the contender's clock jump, now and then.
func (c *contender) skewClock() {
	if c.r.IntN(8) == 0 {
		c.skew.Store(int64((c.r.Float64() - 0.5) * float64(c.w.skews)))
	}
}

// attempt tries once to take the lock, holds it for a while, and lets it go in one of several ways.
func (c *contender) attempt(cleaning *sync.WaitGroup) {
	w := c.w
	lease, sent, err := c.take()
	w.count(func(r *result) { r.attempts++ })
	if err != nil {
		if lease != nil {
			c.cleanUp(cleaning, lease)
		}
		return
	}
	if !w.relax.calm && c.r.IntN(30) == 0 { // the process stalls before it looks at the time
		time.Sleep(time.Duration(c.r.Int64N(int64(2 * simTTL))))
	}
	deadline, ok := until(lease, sent)
	if time.Until(deadline) < simTTL/2 || !ok {
		c.cleanUp(cleaning, lease)
		return
	}
	w.granted(c.id, lease.Token(), deadline)
	deadline, lost := c.hold(lease, deadline)
	crashed := !lost && c.r.IntN(40) == 0 && !w.relax.calm
	if crashed { // or has stalled past the deadline
		time.Sleep(time.Until(deadline))
	}
	w.ended(c.id)
	if crashed && c.r.IntN(2) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), simTTL/4)
	defer cancel()
	if err := lease.Release(ctx); err != nil && !errors.Is(err, locker.ErrLost) {
		c.cleanUp(cleaning, lease)
	}
}

// take asks for the lock, once or until it is granted. sent is from when its TTL may count.
func (c *contender) take() (lease driver.Lease, sent time.Time, err error) {
	if c.w.waits > 0 && c.r.Float64() < c.w.waits {
		lease, err = c.wait()
		return lease, time.Now(), err
	}
	sent = time.Now()
	lease, err = c.try()
	return lease, sent, err
}

// until is when a hold ends, as the core reckons.
func until(lease driver.Lease, sent time.Time) (time.Time, bool) {
	now := time.Now()
	left := min(lease.Validity(), simTTL-now.Sub(sent)) - simTTL/100 - 2*time.Millisecond
	return now.Add(left), left > 0
}

// hold extends the lock a few times, as the core does, and returns its deadline, and whether it is
// known to be lost.
func (c *contender) hold(lease driver.Lease, deadline time.Time) (end time.Time, lost bool) {
	for {
		pause := time.Duration(c.r.ExpFloat64() * float64(c.w.holds))
		if c.r.IntN(12) == 0 {
			pause = time.Duration(c.r.Int64N(int64(simTTL / 2)))
		}
		if time.Until(deadline) <= pause {
			return deadline, false
		}
		time.Sleep(pause)
		if c.r.IntN(3) > 0 {
			return deadline, false
		}
		sent := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), simTTL/6)
		err := lease.Extend(ctx, simTTL)
		cancel()
		switch now := time.Now(); {
		case errors.Is(err, locker.ErrLost) || !now.Before(deadline):
			c.w.count(func(r *result) { r.lost++ })
			return deadline, true
		case err == nil:
			if later, _ := until(lease, sent); later.After(deadline) {
				deadline = later
				c.w.extended(c.id, deadline)
			}
		}
	}
}

// cleanUp releases until that is answered or the TTL has passed, as the core does.
func (c *contender) cleanUp(cleaning *sync.WaitGroup, lease driver.Lease) {
	cleaning.Go(func() {
		pause := 2 * time.Millisecond
		for end := time.Now().Add(simTTL); time.Now().Before(end); pause *= 2 {
			ctx, cancel := context.WithTimeout(context.Background(), simTTL/4)
			err := lease.Release(ctx)
			cancel()
			if err == nil || errors.Is(err, locker.ErrLost) {
				return
			}
			time.Sleep(pause)
		}
	})
}

func (w *world) count(f func(*result)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(&w.result)
}

func (w *world) granted(id int, token uint64, deadline time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	if token <= w.largest {
		w.disorder++
	}
	w.largest = max(w.largest, token)
	for other, until := range w.holders {
		if other != id && now.Before(until) {
			w.overlaps++
		}
	}
	w.holders[id] = deadline
	w.digest = digestOf(w.digest, uint64(id), token, uint64(now.UnixNano()))
	w.grants++
	if w.grants == w.want {
		w.stop()
	}
}

// digestOf mixes values into a number that is the same in each run.
func digestOf(digest uint64, values ...uint64) uint64 {
	for _, v := range values {
		digest = (digest ^ v) * 0x9e3779b97f4a7c15
		digest ^= digest >> 29
		digest *= 0xbf58476d1ce4e5b9
		digest ^= digest >> 32
	}
	return digest
}

func (w *world) extended(id int, deadline time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holders[id] = deadline
	w.result.extended++
}

func (w *world) ended(id int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.holders, id)
}
