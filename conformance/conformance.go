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
	"github.com/go-locker/locker/internal/tb"
)

// TB has the methods of a test that scenarios need. *testing.T implements it, and a command line
// can. Fatalf does not return: it ends the calling goroutine, as that of package testing does.
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(f func())
	Context() context.Context
}

// Harness tells the suite how to make the Locker under test, and what to expect of it.
//
// New, Client and RW must close what they start in a Cleanup function of the TB that they are
// given. The suite runs these functions when a scenario ends, which may be before the test does.
//
// Several goroutines call New, Client, RW, and Revoke, Through and Process of Faults at the same
// time.
type Harness struct {
	// New returns a Locker for name as a process of its own would have it: own client, own
	// connections, no automatic renewal. Lockers of one name contend. For a name that is not
	// valid it may call t.Fatalf, or return a Locker whose Lock fails.
	New func(t TB, name string, ttl time.Duration) locker.Locker

	// TTL is the shortest lifetime that the backend honours. Scenarios ask for multiples of it, up
	// to twenty times TTL, or about 6 s if that is more, and wait for them. One asks for 24 s, and
	// one for a TTL that is not a multiple, which New or Lock may refuse. Below about 300 ms holds
	// expire early on a busy machine, and trials are repeated.
	TTL time.Duration

	// Client, optional, makes a client, with or without automatic renewal, and returns a function
	// that makes its Lockers.
	Client func(t TB, ttl time.Duration, renew bool) func(name string) locker.Locker

	// RW, optional, returns a read-write lock for name as New returns a Locker: as a process of its
	// own would have it, without automatic renewal. Its Lock contends with the Lockers of New.
	RW func(t TB, name string, ttl time.Duration) RWLocker

	// Faults are what the suite may do to the backend.
	Faults Faults

	// Grace says that after a fault that loses the servers' data, the backend grants no name that
	// was free until the longest TTL in use has passed, so that holders can claim their names
	// again. The suite then waits for that long. It expects any other backend to grant a free name
	// at once.
	Grace bool

	// Promises are the guarantees of the backend. A promise that not every lock makes, such as an
	// order of waiters, is checked only if it is listed here. If Promises is nil, the suite calls
	// the method Guarantees() locker.Guarantees of a Locker, if it has one, as *locker.Mutex does.
	// An empty map promises nothing.
	Promises locker.Guarantees

	// Deviations lists, by the name of a scenario, the promises that the backend is known to
	// break, and why. Run requires that it does break those whose scenario is Deterministic, so
	// that the list stays true.
	Deviations map[string]string

	// Sometimes lists, like Deviations, the promises that the backend breaks now and then, although
	// the scenario is Deterministic for others. It is no failure if such a promise is kept.
	Sometimes map[string]string

	operations *atomic.Int64 // counts calls of Lockers
	counted    *tally        // counts the trials of one scenario; nil: nobody asks
	entered    bool          // by Run
	test       string        // that has called Run
	foreign    *foreign      // of Exec; nil: the Lockers are in Go
}

// Scenario is one promise of the contract, and the check that it is kept.
type Scenario struct {
	// Name is unique, and describes what happens.
	Name string
	// Promise is the sentence of the contract that is checked.
	Promise string
	// Sources are where the promise comes from: publications about locks, and defects of libraries.
	Sources []string
	// Deterministic: a Locker that breaks the promise fails the check every time. The others
	// look for a violation that needs luck.
	Deterministic bool
	// Guarantee is the guarantee that the scenario tests. It is empty if every Locker has to keep
	// the promise.
	Guarantee locker.Guarantee
	// Condition is what happens to the backend meanwhile, such as "failover", or empty.
	Condition string
	// Needs are the fields of the Harness that the scenario cannot do without, such as
	// "Faults.StopServer".
	Needs []string
	// Check returns nil if the promise was kept, and an error that describes what was seen if
	// not. If the Harness or the Locker lacks what the scenario needs, IsSkip reports true for
	// the error. Check is bounded in time even if the Locker hangs. It calls t.Fatalf only if
	// New, Client or a fault did.
	Check func(t TB, h Harness) error

	alone    bool // see row
	busy     bool // it keeps the backend and the machine busy
	disturbs bool // it does something to the backend's servers
}

// skipError says why a scenario could not run.
type skipError struct{ reason string }

// Error is the reason.
func (e *skipError) Error() string { return "skipped: " + e.reason }

// Skip returns an error for a [Scenario]'s Check that cannot run, for which IsSkip reports true.
func Skip(reason string) error { return &skipError{reason} }

// IsSkip reports whether err is that of a scenario which could not run.
func IsSkip(err error) bool {
	_, ok := errors.AsType[*skipError](err)
	return ok
}

// Run tests the Locker of h with every scenario, each as a subtest. A failure names the promise
// that was broken, and what was seen. Scenarios that wait run side by side, on names of their own,
// whatever -parallel says. Those that disturb the servers run one after the other, at the end.
// Several Runs may go on at once. One scenario counts goroutines. It waits until no other Run is at
// work, and other tests should not be parallel to a Run. If a test calls Parallel, it does so after
// it has started its servers.
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

// Examine tests the Locker of h with one scenario, for programs that are not tests. It may take a
// minute. If the context of t ends, calls of the Locker end earlier if it heeds that context.
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
	h.counted = new(tally)
	seen := s.Check(t, h)
	why, deviates := h.Deviations[s.Name]
	if sometimes, listed := h.Sometimes[s.Name]; listed && !deviates {
		why, deviates, s.Deterministic = sometimes, true, false
	}
	r := judge(s, *h.counted, seen, deviates, why)
	if h.foreign != nil {
		r.Promise, r.Seen = inItsWords(r.Promise), inItsWords(r.Seen)
	}
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
	s := tb.Within(t, t.Fatalf)
	defer within(time.Minute, s.End)
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

// Scenarios returns all scenarios, in the order of the documentation.
func Scenarios() []Scenario {
	var all []Scenario
	for _, topic := range [][]row{
		exclusionRows, tryRows, contextRows, cancelRows, faultRows, waitingRows, wantedRows, expiryRows, extendRows,
		unlockRows, reuseRows, tokenRows, nameRows, sharingRows, lossRows, silenceRows, clientRows, outageRows, replyRows, networkRows, lateRows, processRows,
		readWriteRows, readWriteQueueRows, readWriteHistoryRows, readers(),
		historyRows, counterRows,
	} {
		for _, r := range topic {
			all = append(all, r.scenario())
		}
	}
	return all
}
