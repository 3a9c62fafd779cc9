package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-locker/locker"
)

// TB is what scenarios need of a test. *testing.T has it, and so can a command line. Fatalf does not
// return: it ends the calling goroutine, as that of package testing does.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(f func())
	Context() context.Context
}

// Harness is how the suite reaches the Locker that it judges.
//
// A scenario may end the life of what it has made before the test ends: it runs the functions given to
// the Cleanup of the TB that it passes. What New and Client start must be closed by such a
// function, and must not outlive it.
//
// Several goroutines call New and Client at the same time, and Revoke, Through and Process of Faults.
type Harness struct {
	// New returns a Locker for name as a process of its own would have it: own client, own
	// connections, no automatic renewal. Lockers of one name contend. For a name that is not
	// valid it may call t.Fatalf, or return a Locker whose Lock fails.
	New func(t TB, name string, ttl time.Duration) locker.Locker

	// TTL is the shortest lifetime that the backend honours; scenarios wait for multiples of it.
	// They ask for multiples of TTL, up to twenty times TTL, or about 6 s if that is more, and one asks
	// for a TTL that is no multiple, which New or Lock may refuse. Below
	// about 300 ms a busy machine has holds expire that should last, and trials are repeated.
	TTL time.Duration

	// Client, optional, returns what makes Lockers that share one client, with or without
	// automatic renewal.
	Client func(t TB, ttl time.Duration, renew bool) func(name string) locker.Locker

	// Faults are what the suite may do to the backend.
	Faults Faults

	// Promises are the guarantees of the backend. What not every lock promises, such as an order
	// among those that wait, is asked of a Locker only if it is in there. If Promises is nil they
	// are what the method Guarantees() locker.Guarantees of New's Lockers returns, if there is
	// one: that of *locker.Mutex returns those of its Client. An empty map promises nothing.
	Promises locker.Guarantees

	// Deviations lists, by the name of a scenario, the promises that the backend is known to
	// break, and why. Run requires that it does break those whose scenario is Deterministic, so
	// that the list stays true.
	Deviations map[string]string

	// Sometimes lists, like Deviations, what the backend breaks now and then, though the scenario
	// is Deterministic for others: that it was kept is no failure.
	Sometimes map[string]string

	operations *atomic.Int64 // counts calls of Lockers
	counted    *tally        // counts the trials of one scenario; nil: nobody asks
	entered    bool          // by Run
}

// Scenario is one promise of the contract, and the check that it is kept.
type Scenario struct {
	// Name is unique, and says what happens.
	Name string
	// Promise is the sentence of the contract that is checked.
	Promise string
	// Sources say where the promise comes from: what was written of locks, and what has broken.
	Sources []string
	// Deterministic: a Locker that breaks the promise fails the check every time. The others
	// look for a violation that needs luck.
	Deterministic bool
	// Guarantee is what the scenario bears witness to, of what tells backends apart. It is empty
	// where the promise is one that every Locker keeps.
	Guarantee locker.Guarantee
	// Condition is what befalls the backend meanwhile, such as "failover", or empty.
	Condition string
	// Needs are the fields of the Harness that the scenario cannot do without, such as
	// "Faults.StopServer".
	Needs []string
	// Check returns nil if the promise was kept, an error for which IsSkip holds if the
	// Harness or the Locker lacks what the scenario needs, and else what was seen. It returns
	// within a bound of its own whatever the Locker does. It calls t.Fatalf only where New,
	// Client or a fault did.
	Check func(t TB, h Harness) error

	alone    bool // see row
	busy     bool // it keeps the backend and the machine busy
	disturbs bool // it does something to the backend's servers
}

// skipError says why a scenario could not run.
type skipError struct{ reason string }

// Error is the reason.
func (e *skipError) Error() string { return "skipped: " + e.reason }

// Skip is the error of a [Scenario]'s Check that cannot run here.
func Skip(reason string) error { return &skipError{reason} }

// IsSkip reports whether err is that of a scenario which could not run.
func IsSkip(err error) bool {
	_, ok := errors.AsType[*skipError](err)
	return ok
}

// Run puts the Locker of h through every scenario: each is a subtest. A failure says which promise was broken, and
// what was seen. Scenarios that wait run side by side, on names of their own, whatever -parallel says; those that
// disturb the servers run one after the other, at the end. Several Runs may go on at once; one scenario counts
// goroutines and waits until it is alone among them, so no other test should be parallel to them. A test that calls
// Parallel does so when its servers run.
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
	h.operations, h.entered = new(atomic.Int64), true
	for field, deviations := range h.deviations() {
		for _, name := range unknown(deviations, scenarios) {
			t.Errorf("%s lists %q, which is no scenario", field, name)
		}
	}
	for _, says := range contradictions(h, scenarios) {
		t.Error(says)
	}
	var results results
	for _, batch := range batches(scenarios) {
		var all sync.WaitGroup
		for _, s := range batch.scenarios {
			batch.places <- struct{}{}
			leave := enter(s.alone) // before there is a goroutine: one that is new, and waits, looks like a leak
			all.Go(func() {
				defer func() { leave(); <-batch.places }()
				t.Run(s.Name, func(t *testing.T) { report(t, s, h, &results) })
			})
		}
		all.Wait()
	}
	t.Log(results.summary(scenarios))
}

// How many scenarios run side by side, of all Runs of this process together: those that wait, and those that keep the backend
// and the machine busy.
var (
	waitingPlaces = make(chan struct{}, 12/slowdown)
	busyPlaces    = make(chan struct{}, max(1, 3/slowdown))
)

// batch is scenarios that run side by side as far as there are places.
type batch struct {
	places    chan struct{}
	scenarios []Scenario
}

// batches are the scenarios in the order in which Run takes them.
func batches(all []Scenario) []batch {
	waiting, busy, last := batch{places: waitingPlaces}, batch{places: busyPlaces}, batch{places: make(chan struct{}, 1)}
	for _, s := range all {
		b := &waiting
		switch {
		case s.disturbs, s.alone:
			b = &last
		case s.busy:
			b = &busy
		}
		b.scenarios = append(b.scenarios, s)
	}
	return []batch{waiting, busy, last}
}

// report is the subtest of a scenario. Only what could not run is skipped.
func report(t *testing.T, s Scenario, h Harness, results *results) {
	t.Helper()
	r := Examine(t, s, h)
	r.Test = caller(t.Name(), s.Name)
	results.add(r)
	if err := r.save(); err != nil {
		t.Error(err)
	}
	switch says := r.String(); {
	case r.Outcome.failed():
		t.Fatal(says)
	case r.Outcome == Skipped:
		t.Skip(says)
	case says != "":
		t.Log(says)
	}
}

// Examine puts the Locker of h through one scenario, for programs that are no tests: a command line, or a page that
// shows how a server does. It takes a while, which the end of t's Context shortens where the Locker heeds that.
//
// Where New, Client or a fault calls t.Fatalf, because a server is unreachable, say, Examine does not return: Fatalf ends the goroutine. The
// caller gives it one of its own, and runs what Cleanup was given when that has ended.
func Examine(t TB, s Scenario, h Harness) Result {
	t.Helper()
	if h.operations == nil {
		h.operations = new(atomic.Int64)
	}
	if s.Guarantee != "" {
		h = h.promising(t)
	}
	began, before := time.Now(), h.operations.Load()
	h.counted = new(tally)
	seen := s.Check(t, h)
	why, deviates := h.Deviations[s.Name]
	if sometimes, listed := h.Sometimes[s.Name]; listed && !deviates {
		why, deviates, s.Deterministic = sometimes, true, false
	}
	r := judge(s, *h.counted, seen, deviates, why)
	if p, ok := h.Promises[s.Guarantee]; ok {
		r.Promised = &p
	}
	r.Operations, r.Seconds = h.operations.Load()-before, time.Since(began).Seconds()
	return r
}

// promising returns h with the promises of its Lockers, unless it has some of its own. It asks one Locker, and ends it.
func (h Harness) promising(t TB) Harness {
	t.Helper()
	if h.Promises != nil || h.New == nil {
		return h
	}
	leave := enter(false)
	defer leave()
	s := newScope(t, t.Fatalf)
	defer within(time.Minute, s.cleanUp)
	if l, ok := h.New(s, freshName(), h.TTL).(guarantor); ok {
		h.Promises = l.Guarantees()
	}
	if h.Promises == nil {
		h.Promises = locker.Guarantees{} // not to be asked for again
	}
	return h
}

// caller is the test that called Run, by the name of the subtest of a scenario.
func caller(subtest, scenario string) string {
	test, _, _ := strings.Cut(subtest, "/"+strings.ReplaceAll(scenario, " ", "_"))
	return test
}

// deviations are what the backend is known to break, by the field that says so.
func (h Harness) deviations() map[string]map[string]string {
	return map[string]map[string]string{"Deviations": h.Deviations, "Sometimes": h.Sometimes}
}

// contradictions are promises without a condition that are listed as broken.
func contradictions(h Harness, scenarios []Scenario) []string {
	var all []string
	for field, deviations := range h.deviations() {
		for _, s := range scenarios {
			if why, deviates := deviations[s.Name]; deviates && h.Promises[s.Guarantee].Level == locker.LevelYes {
				all = append(all, fmt.Sprintf("%q is promised, but %s lists %q: %s", s.Guarantee, field, s.Name, why))
			}
		}
	}
	return all
}

// unknown lists the deviations that are no scenario's.
func unknown(deviations map[string]string, scenarios []Scenario) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(deviations)), func(name string) bool {
		return slices.ContainsFunc(scenarios, func(s Scenario) bool { return s.Name == name })
	})
}

// Scenarios is the suite, in the order in which Run takes it.
func Scenarios() []Scenario {
	var all []Scenario
	for _, topic := range [][]row{
		exclusionRows, tryRows, contextRows, cancelRows, faultRows, waitingRows, expiryRows, extendRows,
		unlockRows, reuseRows, tokenRows, nameRows, sharingRows, lossRows, silenceRows, clientRows, outageRows, replyRows, networkRows, lateRows, processRows,
		historyRows, counterRows,
	} {
		for _, r := range topic {
			all = append(all, r.scenario())
		}
	}
	return all
}
