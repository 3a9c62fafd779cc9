package simulation

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// server is a store of locks. All but driver are called under the world's mutex.
type server interface {
	driver(p *process) driver.Driver
	holder(name string) (token uint64)
	crash()                     // and all that it knew is still there
	snapshot() (restore func()) // restore makes it what it was, as a replica that knows less does that takes over
	jump(d time.Duration)       // of its clock
}

// world is one seed: a server, processes that use it, and what goes wrong.
type world struct {
	dice
	kind    string
	ttl     time.Duration
	quiet   time.Duration // after which nothing goes wrong
	ends    time.Duration
	calm    bool          // nothing goes wrong at all
	blips   bool          // nothing goes wrong but the first request of a claim, whose connection is broken
	safe    bool          // nothing goes wrong that the server promises nothing for
	latency time.Duration // of a message, at most, on a good day
	noise   float64       // the share of messages that meet with something
	windows []window
	names   []string

	settled atomic.Bool

	mu     sync.Mutex // the server
	server server
	down   bool
	asked  map[uint64]bool
	truth  map[string]map[uint64]bool // by name and token: freed by a release that found it held

	book   sync.Mutex // what the processes believe
	active map[string][]*workerHold
	sent   map[uint64][]time.Time // the latest extensions, by owner
	tokens map[string]uint64      // the largest that was granted
	broken []string
	trace  []string
	events uint64 // a hash of the trace
	grants int
	lost   int
}

// String says what kind of world it is.
func (w *world) String() string {
	kind := w.kind
	if w.calm {
		kind += ", calm"
	}
	if !w.safe {
		kind += ", beyond what is promised"
	}
	return fmt.Sprintf("%s, TTL %v", kind, w.ttl)
}

// newWorld draws all that does not depend on what happens.
func newWorld(seed uint64) *world {
	w := &world{
		dice: dice{seed, time.Now()}, truth: map[string]map[uint64]bool{}, asked: map[uint64]bool{}, active: map[string][]*workerHold{}, sent: map[uint64][]time.Time{}, tokens: map[string]uint64{},
	}
	w.ttl = 200*time.Millisecond + w.upTo(5*time.Second, "ttl", 0)
	w.quiet = 12 * w.ttl
	w.ends = w.quiet + 4*w.ttl
	w.calm, w.safe, w.latency = w.chance(0.3, "calm", 0), w.chance(0.8, "safe", 0), w.ttl/200
	if w.calm && w.chance(0.4, "slow", 0) {
		w.latency = w.ttl / 14 // what a renewed hold has to bear
	}
	if w.blips = w.calm && w.latency < w.ttl/20 && w.chance(0.5, "blips", 0); w.blips {
		w.latency = min(w.latency, 4*time.Millisecond) // a request that fails later is the last
	}
	w.noise = 0.04 * float64(w.below(4, "noise", 0))
	for i := range 1 + w.below(2, "names", 0) {
		w.names = append(w.names, fmt.Sprintf("name-%d", i))
	}
	rate := 1 + float64(w.below(1600, "rate", 0)-800)/100000 // within the allowance
	switch w.kind = []string{"queue", "table", "sessions"}[w.below(3, "kind", 0)]; w.kind {
	case "queue":
		w.server = &leases{world: w, queues: true, rate: rate, names: map[string]*lease{}}
	case "table":
		w.server = &leases{world: w, rate: rate, names: map[string]*lease{}}
	default:
		w.server = &sessions{world: w, live: map[uint64]*session{}, names: map[string]*line{}}
	}
	if w.calm {
		w.safe = true
		return w
	}
	for i := range uint64(w.below(6, "windows", 0)) {
		from := w.upTo(w.quiet-3*w.ttl, "from", i)
		x := window{from, from + w.ttl/20 + w.upTo(2*w.ttl, "to", i), w.below(4, "whose", i) - 1, wrong(w.below(4, "what", i))}
		if !w.safe && w.chance(0.5, "unsafe", i) {
			x.what = changing + wrong(w.below(2, "unsafe what", i))
		}
		if x.what >= crashing {
			x.process = -1
		}
		w.windows = append(w.windows, x)
	}
	return w
}

// play has the windows open and close that are more than a network's.
func (w *world) play() {
	for i, x := range w.windows {
		under := func(at time.Duration, f func()) {
			time.AfterFunc(at-time.Since(w.began), func() {
				w.mu.Lock()
				defer w.mu.Unlock()
				f()
			})
		}
		switch x.what {
		case crashing:
			under(x.from, func() { w.down = true })
			under(x.to, func() { w.down = false; w.server.crash() })
		case changing:
			var restore func()
			under(max(x.from-w.upTo(w.ttl/2, "lag", uint64(i)), 0), func() { restore = w.server.snapshot() })
			under(x.from, func() { w.down = true })
			under(x.to, func() { restore(); w.down = false })
		case jumping:
			d := w.upTo(4*w.ttl, "jump", uint64(i)) - 2*w.ttl
			under(x.from, func() { w.server.jump(d) })
		}
	}
}

// note adds a line to the trace.
func (w *world) note(format string, args ...any) {
	line := fmt.Sprintf("%12v ", time.Since(w.began)) + fmt.Sprintf(format, args...)
	w.trace = append(w.trace, line)
	h := fnv.New64a()
	_, _ = h.Write([]byte(line))
	w.events += h.Sum64() // goroutines that run at one instant may come in any order
}

// breaks notes a promise that was broken. The caller holds the book.
func (w *world) breaks(format string, args ...any) {
	w.note("BROKEN: "+format, args...)
	w.broken = append(w.broken, fmt.Sprintf("after %v: ", time.Since(w.began))+fmt.Sprintf(format, args...))
}

// freed notes, at the server, that a release has found its hold.
func (w *world) freed(name string, token uint64) {
	if w.truth[name] == nil {
		w.truth[name] = map[uint64]bool{}
	}
	w.truth[name][token] = true
}

// run plays the seed, and returns what was broken.
func (w *world) run() []string {
	clock.Random = func(n time.Duration) time.Duration { return w.upTo(n, "jitter", 0) }
	w.play()
	var all []*process
	start := func(id int) *process {
		p := w.process(id)
		p.done.Go(p.stay)
		for n := range 1 + w.below(3, "workers", uint64(id)) {
			p.workers.Go(func() { p.use(n) })
		}
		return p
	}
	for id := range 2 + w.below(2, "processes", 0) {
		all = append(all, start(id))
	}
	for i := range uint64(w.below(3, "departures", 0)) {
		time.Sleep(w.upTo(w.quiet/2, "departure", i))
		old := w.below(len(all), "which", i)
		p := all[old]
		if w.chance(0.5, "killed", i) && !w.calm {
			p.dead.Store(true)
		}
		next := start(len(all) + 10*int(i+1))
		all[old] = next
		p.close()
	}
	time.Sleep(w.ends - time.Since(w.began))
	w.settle(all)
	for _, p := range all {
		p.close()
	}
	w.empty()
	return w.broken
}

// settle requires that, some time after all faults, each process can have each lock, while the
// others go on.
func (w *world) settle(all []*process) {
	for _, p := range all {
		p.workers.Wait()
	}
	for _, p := range all {
		for _, name := range w.names {
			ctx, cancel := context.WithTimeout(context.Background(), 3*w.ttl+time.Second)
			m := p.mutex[name]
			if err := m.Lock(ctx); err != nil {
				w.breaking("nobody uses %s, and p%d cannot have it %v later: %v", name, p.id, 3*w.ttl+time.Second, err)
			} else if err := m.Unlock(ctx); err != nil {
				w.breaking("nobody else uses %s, and p%d cannot give it back: %v", name, p.id, err)
			}
			cancel()
		}
	}
	w.settled.Store(true)
}

// empty requires that nothing is held when all have closed.
func (w *world) empty() {
	time.Sleep(10 * time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, name := range w.names {
		if token := w.server.holder(name); token > 0 && w.calm {
			w.breaking("all have closed, and %s is held with token %d", name, token)
		}
	}
}
