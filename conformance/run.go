package conformance

import (
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/scenario"
)

// Run tests the Locker of h with every scenario, each as a subtest. A failure names the promise
// that was broken, and what was seen. Scenarios that wait run side by side, on names of their own,
// whatever -parallel says. Those that disturb the servers run one after the other, at the end.
// Several Runs may go on at once. One scenario counts goroutines. It waits until no other Run is at
// work. It cannot wait for tests that do not call Run: let none of these be parallel to a Run. A
// test that calls Run may call Parallel, too. Then let it start its servers before Parallel,
// because goroutines that begin later disturb this scenario.
func Run(t *testing.T, h Harness) {
	t.Helper()
	run(t, h, Scenarios())
}

func run(t *testing.T, h Harness, scenarios []Scenario) {
	t.Helper()
	if h.New == nil || h.TTL <= 0 {
		t.Fatal("conformance: a Harness needs New and TTL")
	}
	h = h.promising(t)
	h.operations, h.entered, h.test = new(atomic.Int64), true, t.Name()
	for field, deviations := range h.deviations() {
		for _, name := range unknown(deviations, scenarios) {
			t.Errorf("%s lists %q, which is no scenario", field, name)
		}
	}
	for _, says := range contradictions(h, scenarios) {
		t.Error(says)
	}
	var results results
	var aside, inTurn sync.WaitGroup
	for _, batch := range batches(scenarios) {
		all := &inTurn
		if batch.places == asidePlaces {
			all = &aside
		}
		if batch.last {
			aside.Wait()
		}
		for _, s := range batch.scenarios {
			batch.places <- struct{}{}
			// Enter before the goroutine starts: one that waits there would look like a leak.
			leave := scenario.Enter(s.row.Alone)
			all.Go(func() {
				defer func() { leave(); <-batch.places }()
				t.Run(s.Name, func(t *testing.T) { report(t, s, h, &results) })
			})
		}
		inTurn.Wait()
	}
	t.Log(results.summary(scenarios))
}

// How many scenarios run side by side in all Runs of this process together: scenarios that wait,
// scenarios that keep the backend and the machine busy, and, beside both, scenarios that wait
// longest.
var (
	waitingPlaces = make(chan struct{}, 12/slowdown)
	busyPlaces    = make(chan struct{}, max(1, 3/slowdown))
	asidePlaces   = make(chan struct{}, 12)
)

// batch is scenarios that run side by side as far as there are places.
type batch struct {
	places    chan struct{}
	scenarios []Scenario
	last      bool // it begins when all others have ended
}

// batches are the scenarios in the order in which Run takes them.
func batches(all []Scenario) []batch {
	aside, waiting, busy, last := batch{places: asidePlaces}, batch{places: waitingPlaces}, batch{places: busyPlaces}, batch{places: make(chan struct{}, 1), last: true}
	for _, s := range all {
		b := &waiting
		switch {
		case s.row.Disturbs(), s.row.Alone:
			b = &last
		case s.row.Aside:
			b = &aside
		case s.row.Chance:
			b = &busy
		}
		b.scenarios = append(b.scenarios, s)
	}
	return []batch{aside, waiting, busy, last}
}

// report is the subtest of a scenario. Only a scenario that could not run is skipped.
func report(t *testing.T, s Scenario, h Harness, results *results) {
	t.Helper()
	// The result if the Harness calls Fatalf.
	r := Result{Scenario: s.Name, Promise: s.Promise, Outcome: Undecided, Seen: "the Harness has ended it"}
	defer func() {
		r.Test = caller(t.Name(), s.Name)
		results.add(r)
		if err := r.save(); err != nil {
			t.Error(err)
		}
	}()
	r = Examine(t, s, h)
	switch says := r.String(); {
	case r.Outcome.failed():
		t.Fatal(says)
	case r.Outcome == Skipped:
		t.Skip(says)
	case says != "":
		t.Log(says)
	}
}

// Examine tests the Locker of h with one scenario, for programs that are not tests. It may take a
// minute. If the context of t ends, and the Locker heeds it, calls of the Locker end before their
// normal time.
//
// If New, Client or a fault calls t.Fatalf, for example because a server is unreachable, Examine
// does not return: Fatalf ends the goroutine. So call it in a goroutine of its own, and run the
// Cleanup functions of t after that has ended.
func Examine(t TB, s Scenario, h Harness) Result {
	t.Helper()
	if h.operations == nil {
		h.operations = new(atomic.Int64)
	}
	if s.Guarantee != "" {
		h = h.promising(t)
	}
	began, before := time.Now(), h.operations.Load()
	h.counted = new(engine.Tally)
	seen := s.check(t, h)
	why, deviates := h.Deviations[s.Name]
	if sometimes, listed := h.Sometimes[s.Name]; listed && !deviates {
		why, deviates, s.Deterministic = sometimes, true, false
	}
	r := judge(s, *h.counted, seen, deviates, why)
	if h.Program != nil {
		r.Promise, r.Seen = inItsWords(r.Promise), inItsWords(r.Seen)
	}
	if p, ok := h.Promises[s.Guarantee]; ok {
		r.Promised = &p
	}
	r.Operations, r.Seconds = h.operations.Load()-before, time.Since(began).Seconds()
	return r
}

// caller is the test that called Run, by the name of the subtest of a scenario.
func caller(subtest, scenario string) string {
	test, _, _ := strings.Cut(subtest, "/"+strings.ReplaceAll(scenario, " ", "_"))
	return test
}
