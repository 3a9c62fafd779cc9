package conformance

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
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
type Harness struct {
	// New returns a Locker for name as a process of its own would have it: own client, own
	// connections, no automatic renewal. Lockers of one name contend. For a name that is not
	// valid it may call t.Fatalf, or return a Locker whose Lock fails.
	New func(t TB, name string, ttl time.Duration) locker.Locker

	// TTL is the shortest lifetime that the backend honours; scenarios wait for multiples of it.
	// They ask for lifetimes from TTL to ten times TTL, and for up to 3 s if that is more. Below
	// about 300 ms a busy machine has holds lapse that should last, and trials are repeated.
	TTL time.Duration

	// Client, optional, returns what makes Lockers that share one client, with or without
	// automatic renewal.
	Client func(t TB, ttl time.Duration, renew bool) func(name string) locker.Locker

	// Faults are what the suite may do to the backend.
	Faults Faults

	// Deviations lists, by the name of a scenario, the promises that the backend is known to
	// break, and why. Run requires that it does break those whose scenario is Deterministic, so
	// that the list stays true.
	Deviations map[string]string
}

// Faults are functions that do harm to the backend, each optional. Scenarios that need a missing one
// are skipped, and say so.
type Faults struct {
	// StopServer makes the server silent: it accepts connections, keeps those that it has, and
	// answers nothing until resume is called. Its clock goes on. The suite calls resume once.
	StopServer func(t TB) (resume func())
}

// Scenario is one promise of the contract, and the check that it is kept.
type Scenario struct {
	// Name is unique, and says what happens.
	Name string
	// Promise is the sentence of the contract that is checked.
	Promise string
	// Deterministic: a Locker that breaks the promise fails the check every time. The others
	// look for a violation that needs luck.
	Deterministic bool
	// Check returns nil if the promise was kept, an error for which [IsSkip] holds if the
	// Harness or the Locker lacks what the scenario needs, and else what was seen. It returns
	// within a bound of its own whatever the Locker does. It calls t.Fatalf only where New,
	// Client or a fault did.
	Check func(t TB, h Harness) error
}

// SkipError says why a scenario could not run.
type SkipError struct{ Reason string }

// Error is the reason.
func (e *SkipError) Error() string { return "skipped: " + e.Reason }

// Skip is the error of a scenario that cannot run here.
func Skip(reason string) error { return &SkipError{Reason: reason} }

// IsSkip says whether err is that of a scenario which could not run.
func IsSkip(err error) bool {
	_, ok := errors.AsType[*SkipError](err)
	return ok
}

// Run puts the Locker of h through every scenario: each is a subtest, one after the other. A failure
// says which promise was broken, and what was seen. One scenario counts goroutines, so that a test
// which calls Run should not be parallel.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.New == nil || h.TTL <= 0 {
		t.Fatal("conformance: a Harness needs New and TTL")
	}
	scenarios := Scenarios()
	for _, name := range unknown(h.Deviations, scenarios) {
		t.Errorf("Deviations lists %q, which is no scenario", name)
	}
	for _, s := range scenarios {
		t.Run(s.Name, func(t *testing.T) {
			reason, known := h.Deviations[s.Name]
			switch failed, says := judge(s, s.Check(t, h), known, reason); {
			case failed:
				t.Fatal(says)
			case says != "":
				t.Skip(says)
			}
		})
	}
}

// judge turns the outcome of a check into a failure, or else a reason to be printed as skipped; neither
// is a pass.
func judge(s Scenario, seen error, deviates bool, why string) (failed bool, says string) {
	switch {
	case IsSkip(seen):
		return false, seen.Error()
	case deviates && seen != nil:
		return false, fmt.Sprintf("known deviation: %s\npromise: %s\nseen: %v", why, s.Promise, seen)
	case deviates && s.Deterministic:
		return true, fmt.Sprintf("listed as a deviation (%s), but the promise is kept: take it off the list\npromise: %s", why, s.Promise)
	case deviates:
		return false, fmt.Sprintf("known deviation: %s\nnot seen this time; the scenario needs luck", why)
	case seen != nil:
		return true, fmt.Sprintf("\npromise: %s\nseen: %v", s.Promise, seen)
	default:
		return false, ""
	}
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
		exclusionRows, tryRows, contextRows, cancelRows, waitingRows, lapseRows, extendRows,
		unlockRows, reuseRows, tokenRows, nameRows, sharingRows, lossRows, silenceRows, clientRows,
	} {
		for _, r := range topic {
			all = append(all, Scenario{Name: r.name, Promise: r.promise, Deterministic: !r.chance, Check: r.check})
		}
	}
	return all
}
