package conformance

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/power"
	"github.com/go-locker/locker/internal/tb"
)

var forFlag = flag.Duration("conformance.for", 0, "how long all random histories of one Harness take together (default: about 3 s each)")

// row is a line of the suite's table.
type row struct {
	name    string
	promise string
	sources []string
	chance  bool       // whether it finds a violation depends on luck
	body    func(*env) // ends by returning, or as env.failf and its like do

	needs     []need
	shows     locker.Guarantee
	condition string
	alone     bool                        // it looks at the whole process
	aside     bool                        // it waits for up to half a minute, and so beside all others
	queued    bool                        // asked only of a Locker whose Harness promises an order of waiters
	optional  bool                        // asked only of a Locker whose Harness promises what it shows
	lasts     func(Harness) time.Duration // how much longer than others it may take; nil: not at all
}

func (r row) scenario() Scenario {
	s := Scenario{
		Name: r.name, Promise: r.promise, sources: r.sources, Deterministic: !r.chance,
		Guarantee: r.shows, Condition: r.condition, check: r.check, alone: r.alone, aside: r.aside, busy: r.chance,
	}
	for _, n := range r.needs {
		if n.why == "" {
			s.Needs = append(s.Needs, n.name)
		}
		s.disturbs = s.disturbs || n.disturbs
	}
	return s
}

// check runs trials of the scenario until one of them says something for certain.
func (r row) check(t TB, h Harness) error {
	t.Helper()
	if missing := unmet(r.needs, h); missing != nil {
		return missing
	}
	if r.optional || r.queued || slices.ContainsFunc(r.needs, func(n need) bool { return n.name == readsWrites.name }) {
		h = h.promising(t) // see ordered, which may not wait for the process once more
	}
	if r.optional && h.Promises[r.shows].Level == locker.LevelNo {
		return skipped(fmt.Sprintf("the Harness does not promise %q", r.shows))
	}
	if r.queued && !h.hasQueue() {
		return skipped("the Harness promises no order of waiters, so the backend may have no queue from which a holder learns that somebody waits")
	}
	if !h.entered {
		leave := enter(r.alone)
		defer leave()
	}
	limit := 30*time.Second + 30*h.TTL
	if r.lasts != nil {
		limit += r.lasts(h)
	}
	if r.aside {
		limit += 2 * halfMinute
	}
	n := h.counted
	if n == nil {
		n = new(engine.Tally)
	}
	trial := func() (paused bool, err error) { return r.trial(t, h, limit) }
	if _, known := h.Deviations[r.name]; known {
		return n.Confirm(r.chance, trial)
	}
	n.Long = r.aside || r.lasts != nil && *forFlag > 0
	return n.Run(limit, t.Logf, trial)
}

// thisProcess is this process: scenarios share it, but for those that look at all of it. Several Runs may go on at once.
var thisProcess sync.RWMutex

// enter waits until a scenario may use this process.
func enter(alone bool) (leave func()) {
	if alone {
		thisProcess.Lock()
		return thisProcess.Unlock
	}
	thisProcess.RLock()
	return thisProcess.RUnlock
}

// trial runs the body until it was not a rehearsal, see pace.
func (r row) trial(t TB, h Harness, limit time.Duration) (paused bool, verdict error) {
	for n := 1; ; n++ {
		var late error
		paused, verdict, late = r.once(t, h, limit)
		switch _, doubted := errors.AsType[*engine.Doubt](verdict); {
		case late == nil, verdict != nil && !doubted: // a certain verdict does not depend on timing
			return paused, verdict
		case n == rehearsals:
			return paused, late
		}
	}
}

// once runs the body in a goroutine, which is left alone if the Locker does not return. late is not
// nil if it was a rehearsal.
func (r row) once(t TB, h Harness, limit time.Duration) (paused bool, verdict, late error) {
	e := newEnv(t, h)
	e.scenario = r.name
	e.calm = !slices.ContainsFunc(r.needs, need.fault)
	defer e.close()
	paused, verdict = e.trial.Run(limit, func() { r.body(e) })
	if e.record != nil && !isSkip(verdict) {
		if err := e.record.save(h.test, r.name, e.again(0), verdict); err != nil {
			t.Fatalf("conformance: -conformance.record: %v", err)
		}
	}
	if bad, ok := errors.AsType[*engine.Fatal](verdict); ok {
		t.Fatalf("%s", bad.Message)
	}
	return paused, verdict, e.pace.rehearsed()
}

// promising returns h with the promises of its Lockers, unless it has some of its own. It asks one
// Locker, and ends it.
func (h Harness) promising(t TB) Harness {
	t.Helper()
	if h.Promises != nil || h.New == nil {
		return h
	}
	leave := enter(false)
	defer leave()
	s := tb.Within(t, t.Fatalf)
	defer engine.Within(time.Minute, s.End)
	if l, ok := h.New(s, freshName(), h.TTL).(power.Guarantor); ok {
		h.Promises = l.Guarantees()
	}
	if h.Promises == nil {
		h.Promises = locker.Guarantees{} // not to be asked for again
	}
	return h
}
