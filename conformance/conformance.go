package conformance

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/remote"
)

// Harness tells the suite how to make the Locker under test, and what to expect of it.
//
// New, Client and RW have to register a Cleanup function of their TB that closes what they start.
// The suite runs these functions when a scenario ends, which may be before the test does.
//
// Several goroutines call New, Client, RW, and Revoke, Through and Process of Faults at the same
// time.
type Harness struct {
	// New returns a Locker for name as a process of its own would have it: own client, own
	// connections, no automatic renewal. Lockers of one name contend. For a name that is not
	// valid it may call t.Fatalf, or return a Locker whose Lock fails.
	New func(t TB, name string, ttl time.Duration) locker.Locker

	// TTL is the shortest lifetime that the backend honours. Scenarios ask for multiples of TTL,
	// and wait until they have passed. The longest is twenty times TTL, or about 6 s if that is
	// more. One scenario asks for more, from 24 s to 50 days. Another asks for a TTL that is no
	// multiple of TTL. New or Lock may refuse these. Below about 300 ms holds expire early on a busy
	// machine, and trials are repeated.
	TTL time.Duration

	// Client, optional, makes a client, with or without automatic renewal, and returns a function
	// that makes its Lockers.
	Client func(t TB, ttl time.Duration, renew bool) func(name string) locker.Locker

	// RW, optional, returns a read-write lock for name as New returns a Locker: as a process of its
	// own would have it, without automatic renewal. Its Lock contends with the Lockers of New.
	RW func(t TB, name string, ttl time.Duration) RWLocker

	// Faults are what the suite may do to the backend.
	Faults Faults

	// Grace says that the backend waits after a fault that loses the servers' data: it grants no
	// free name until the longest TTL in use has passed, so that holders can claim their names
	// again. The suite then waits for that long. It expects any other backend to grant a free name
	// at once.
	Grace bool

	// Promises are the guarantees of the backend. A promise that not every lock makes, such as an
	// order of waiters, is checked only if it is listed here. If Promises is nil, the suite calls
	// the method Guarantees() locker.Guarantees of a Locker, if it has one, as *locker.Mutex does.
	// An empty map promises nothing.
	Promises locker.Guarantees

	// Deviations lists, by the name of a scenario, the promises that the backend is known to break,
	// and why. If the scenario of a listed promise is Deterministic, and the backend keeps the
	// promise, Run fails. So the list stays true.
	Deviations map[string]string

	// Sometimes is like Deviations, for promises that this backend breaks only now and then. A
	// Deterministic scenario in Deviations has to fail each time, or Run fails. If the backend
	// fails it only sometimes, list it here. Scenarios that are not Deterministic can stay in
	// Deviations. It is no failure if a listed promise is kept.
	Sometimes map[string]string

	// Program is set by Exec of package program. It is nil for Lockers in Go.
	Program *remote.Launcher

	operations *atomic.Int64 // counts calls of Lockers
	counted    *engine.Tally // counts the trials of one scenario; nil: nobody asks
	entered    bool          // by Run
	test       string        // that has called Run
}

// Scenario is one promise of the contract, and the check that it is kept.
type Scenario struct {
	// Name is unique, and describes what happens.
	Name string
	// Promise is the sentence of the contract that is checked.
	Promise string
	// Deterministic: a Locker that breaks the promise fails the check every time. Scenarios that
	// are not Deterministic look for a violation that is seen only with luck.
	Deterministic bool
	// Guarantee is the guarantee that the scenario tests. It is empty if every Locker has to keep
	// the promise.
	Guarantee locker.Guarantee
	// Condition is what happens to the backend meanwhile, such as "failover", or empty.
	Condition string
	// Needs are the fields of the Harness that the scenario cannot do without, such as
	// "Faults.StopServer".
	Needs []string
	// check returns nil if the promise was kept, a skipError if the Harness or the Locker lacks what
	// the scenario needs, and else what was seen. It is bounded in time even if the Locker hangs. It
	// calls t.Fatalf only if New, Client or a fault did.
	check    func(t TB, h Harness) error
	sources  []string // publications about locks, and defects of libraries, that the promise comes from
	alone    bool     // see row
	aside    bool     // see row
	busy     bool     // it keeps the backend and the machine busy
	disturbs bool     // it does something to the backend's servers
}

// skipError says why a scenario could not run.
type skipError struct{ reason string }

// Error is the reason.
func (e *skipError) Error() string { return "skipped: " + e.reason }

func skipped(reason string) error { return &skipError{reason} }

func isSkip(err error) bool {
	_, ok := errors.AsType[*skipError](err)
	return ok
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

// hasQueue reports whether the backend may have one, so that it can tell who waits.
func (h Harness) hasQueue() bool { return h.Promises[locker.Ordered].Level != locker.LevelNo }
