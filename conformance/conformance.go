package conformance

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/harness"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/conformance/internal/power"
	"github.com/go-locker/locker/conformance/internal/remote"
	"github.com/go-locker/locker/conformance/internal/scenario"
	"github.com/go-locker/locker/internal/tb"
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
	// multiple of TTL. New or Lock may refuse these. Below about 300 ms holds expire early on a
	// busy machine, and trials are repeated.
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
	// check returns nil if the promise was kept, an engine.Skip if the Harness or the Locker lacks
	// what the scenario needs, and else what was seen. It is bounded in time even if the Locker
	// hangs. It calls t.Fatalf only if New, Client or a fault did.
	check func(t TB, h Harness) error
	row   scenario.Row
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

// TB has the methods of a test that scenarios need. *testing.T implements it, and a command-line
// program can implement it, too. Fatalf does not return: it ends the calling goroutine, as that of
// package testing does.
type TB = interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(f func())
	Context() context.Context
}

// RWLocker is a [locker.Locker] that takes shares, too, as a read-write lock does. Lock waits for a
// hold that excludes all others. RLock waits for a share, which excludes only Lock. Unlock, Extend
// and FencingToken concern the current hold, of either kind. *locker.RWMutex is one.
//
// Shares that are held at the same time have one token. It is above that of the last hold of Lock
// (or the same, if that hold was downgraded to a share), and below that of the next. Lock and
// TryLock return an error at once if the RWLocker's own hold is a share.
//
// If the Harness promises locker.Ordered, waiters are served first come, first served: an RLock
// waits for the Locks that came before it, and several RLocks in a row hold their shares at the
// same time. Without locker.Ordered, either kind may go first.
//
// An RWLocker may also have Downgrade(ctx context.Context) error, which turns its hold into a share
// in one step: the token and the time that is left stay. Downgrade returns an error that matches
// locker.ErrLost if the hold was lost, and locker.ErrNotHeld without a hold. After any other error
// Downgrade can be called again, also if the hold is a share by then.
type RWLocker = interface {
	locker.Locker
	// RLock waits for a share as Lock waits for the lock.
	RLock(ctx context.Context) error
	// TryRLock makes one attempt. It returns an error that matches locker.ErrHeld if a hold of Lock
	// is there. If the Harness promises locker.Ordered, it also does so while somebody waits in
	// Lock.
	TryRLock(ctx context.Context) error
}

// inner is h as the packages of the scenarios see it, which this one imports.
func (h Harness) inner(scenario string) harness.Harness {
	_, known := h.Deviations[scenario]
	return harness.Harness{
		New: h.New, TTL: h.TTL, Client: h.Client, RW: h.RW, Faults: harness.Faults(h.Faults),
		Grace: h.Grace, Promises: h.Promises, Program: h.Program,
		Operations: h.operations, Counted: h.counted, Entered: h.entered, Known: known, Test: h.test,
	}
}

// promising returns h with the promises of its Lockers, unless it has some of its own. It asks one
// Locker, and ends it.
func (h Harness) promising(t TB) Harness {
	t.Helper()
	if h.Promises != nil || h.New == nil {
		return h
	}
	leave := scenario.Enter(false)
	defer leave()
	s := tb.Within(t, t.Fatalf)
	defer engine.Within(time.Minute, s.End)
	if l, ok := h.New(s, party.FreshName(), h.TTL).(power.Guarantor); ok {
		h.Promises = l.Guarantees()
	}
	if h.Promises == nil {
		h.Promises = locker.Guarantees{} // not to be asked for again
	}
	return h
}
