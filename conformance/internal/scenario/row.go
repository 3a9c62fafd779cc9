// Package scenario runs the scenarios of the suite. Each topic is a package below it, which lists
// its scenarios as rows.
package scenario

import (
	"errors"
	"flag"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/harness"
	"github.com/go-locker/locker/conformance/internal/need"
	"github.com/go-locker/locker/conformance/internal/party"
)

// For is how long all random histories of one Harness take together; 0: as long as each needs.
var For = flag.Duration("conformance.for", 0, "how long all random histories of one Harness take together (default: about 3 s each)")

// Row is a line of the suite's table.
type Row struct {
	Name    string
	Promise string
	Sources []string         // where the promise comes from, if not from the contract of the interface
	Chance  bool             // whether it finds a violation depends on luck
	Body    func(*party.Env) // ends by returning, or as Env.Failf and its like do

	Needs     []need.Need
	Shows     locker.Guarantee
	Condition string
	Alone     bool                                // inspects the whole process
	Aside     bool                                // waits for up to half a minute, beside others
	Queued    bool                                // only if the Harness promises order of waiters
	Lasts     func(harness.Harness) time.Duration // how much longer it may take; nil: no longer
}

// Disturbs reports whether the scenario disturbs the backend's servers.
func (r Row) Disturbs() bool {
	return slices.ContainsFunc(r.Needs, func(n need.Need) bool { return n.Disturbs })
}

// optional reports whether the scenario runs only if the Harness promises what it shows: not every
// lock has a queue.
func (r Row) optional() bool { return r.Shows == locker.Ordered || r.Shows == locker.Woken }

// HeedsPromises reports whether the scenario depends on the promises of h, and h has all else that
// it needs.
func (r Row) HeedsPromises(h harness.Harness) bool {
	return (r.optional() || r.Queued || slices.ContainsFunc(r.Needs, func(n need.Need) bool { return n.Name == need.ReadsWrites.Name })) &&
		need.Unmet(r.Needs, h) == nil
}

// Check runs trials of the scenario until one gives a certain verdict.
func (r Row) Check(t harness.TB, h harness.Harness) error {
	t.Helper()
	if missing := need.Unmet(r.Needs, h); missing != nil {
		return missing
	}
	if r.optional() && h.Promises[r.Shows].Level == locker.LevelNo {
		return engine.Skipped(fmt.Sprintf("the Harness does not promise %q", r.Shows))
	}
	if r.Queued && !h.HasQueue() {
		return engine.Skipped("the Harness promises no order of waiters, so the backend may have " +
			"no queue from which a holder learns that somebody waits")
	}
	if !h.Entered {
		leave := Enter(r.Alone)
		defer leave()
	}
	limit := 30*time.Second + 30*h.TTL
	if r.Lasts != nil {
		limit += r.Lasts(h)
	}
	if r.Aside {
		limit += 2 * party.HalfMinute
	}
	n := h.Counted
	if n == nil {
		n = new(engine.Tally)
	}
	trial := func() (paused bool, err error) { return r.trial(t, h, limit) }
	if h.Known {
		return n.Confirm(r.Chance, trial)
	}
	n.Long = r.Aside || r.Lasts != nil && *For > 0
	return n.Run(limit, t.Logf, trial)
}

// thisProcess is locked by scenarios that inspect the whole process, and shared by all others.
// Several Runs may go on at once.
var thisProcess sync.RWMutex

// Enter waits until a scenario may run in this process; alone, while no other one runs.
func Enter(alone bool) (leave func()) {
	if alone {
		thisProcess.Lock()
		return thisProcess.Unlock
	}
	thisProcess.RLock()
	return thisProcess.RUnlock
}

// trial repeats the body until a run is not discarded as a rehearsal, see party.Pace.
func (r Row) trial(t harness.TB, h harness.Harness, limit time.Duration) (paused bool, verdict error) {
	for n := 1; ; n++ {
		var late error
		paused, verdict, late = r.once(t, h, limit)
		switch _, doubted := errors.AsType[*engine.Doubt](verdict); {
		case late == nil, verdict != nil && !doubted: // a certain verdict does not depend on timing
			return paused, verdict
		case n == party.Rehearsals:
			return paused, late
		}
	}
}

// once runs the body in a goroutine, which it abandons if the Locker does not return. late is not
// nil if the run was a rehearsal.
func (r Row) once(t harness.TB, h harness.Harness, limit time.Duration) (paused bool, verdict, late error) {
	e := party.NewEnv(t, h)
	e.Scenario = r.Name
	e.Calm = !slices.ContainsFunc(r.Needs, need.Need.Fault)
	defer e.Close()
	paused, verdict = e.Trial.Run(limit, func() {
		r.Body(e)
		e.Decide(e.Pace.Enough())
	})
	if h.Counted != nil {
		h.Counted.Holds = int(e.Pace.Holds.Load())
	}
	if e.Record != nil && !engine.IsSkip(verdict) {
		if err := e.Record.Keep(h.Test, r.Name, e.Again(0), verdict); err != nil {
			t.Fatalf("conformance: -conformance.record: %v", err)
		}
	}
	if bad, ok := errors.AsType[*engine.Fatal](verdict); ok {
		t.Fatalf("%s", bad.Message)
	}
	return paused, verdict, e.Pace.Rehearsed()
}
