// Package harness is the Harness of package conformance as the scenarios see it, which that package
// imports.
package harness

import (
	"context"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/power"
	"github.com/go-locker/locker/conformance/internal/remote"
)

// TB is conformance.TB.
type TB = interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(f func())
	Context() context.Context
}

// Harness is a conformance.Harness, where the fields are documented, as one scenario sees it.
type Harness struct {
	New      func(t TB, name string, ttl time.Duration) locker.Locker
	TTL      time.Duration
	Client   func(t TB, ttl time.Duration, renew bool) func(name string) locker.Locker
	RW       func(t TB, name string, ttl time.Duration) power.Sharer
	Faults   Faults
	Grace    bool
	Promises locker.Guarantees
	Program  *remote.Launcher

	Operations *atomic.Int64 // counts calls of Lockers; nil: not counted
	Counted    *engine.Tally // counts the trials; nil: not counted
	Entered    bool          // by Run, see scenario.Enter
	Known      bool          // the backend is known to break the promise
	Test       string        // the test that called Run
}

// Faults are conformance.Faults, which converts to it.
type Faults struct {
	StopServer    func(t TB) (resume func())
	KillServer    func(t TB) (restart func())
	WipeServer    func(t TB) (restart func())
	Refuse        func(t TB) (accept func())
	FailOver      func(t TB) (fail func())
	MoveClock     func(t TB, d time.Duration) (back func())
	Revoke        func(t TB, name string)
	Through       func(t TB, name string, ttl time.Duration, via func(address string) string) locker.Locker
	ThroughClient func(t TB, ttl time.Duration, renew bool, via func(address string) string) func(name string) locker.Locker
	Process       func(t TB) *exec.Cmd
}

// HasQueue reports whether the backend may have a queue, from which a holder can learn of waiters.
func (h Harness) HasQueue() bool { return h.Promises[locker.Ordered].Level != locker.LevelNo }
