// Package need lists what a scenario may need of a Harness and its Lockers.
package need

import (
	"slices"
	"strings"

	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/harness"
	"github.com/go-locker/locker/internal/stdio"
)

// Need is something that a scenario cannot do without.
type Need struct {
	Name     string
	Disturbs bool // whatever uses the backend at the same time
	Met      func(harness.Harness) bool
	Why      string // it is not met; empty: the Harness has no such field
}

// Fault reports whether it is one of Faults.
func (n Need) Fault() bool { return strings.Contains(n.Name, "Faults.") }

// What the Harness may lack.
var (
	Stops     = Need{"Faults.StopServer", true, func(h harness.Harness) bool { return h.Faults.StopServer != nil }, ""}
	Kills     = Need{"Faults.KillServer", true, func(h harness.Harness) bool { return h.Faults.KillServer != nil }, ""}
	Wipes     = Need{"Faults.WipeServer", true, func(h harness.Harness) bool { return h.Faults.WipeServer != nil }, ""}
	Refuses   = Need{"Faults.Refuse", true, func(h harness.Harness) bool { return h.Faults.Refuse != nil }, ""}
	FailsOver = Need{"Faults.FailOver", true, func(h harness.Harness) bool { return h.Faults.FailOver != nil }, ""}
	Clocks    = Need{"Faults.MoveClock", true, func(h harness.Harness) bool { return h.Faults.MoveClock != nil }, ""}
	Revokes   = Need{"Faults.Revoke", false, func(h harness.Harness) bool { return h.Faults.Revoke != nil }, ""}
	Links     = Need{"Faults.Through", false, func(h harness.Harness) bool { return h.Faults.Through != nil }, ""}
	Linkers   = Need{"Faults.ThroughClient", false, func(h harness.Harness) bool { return h.Faults.ThroughClient != nil }, ""}
	Processes = Need{"Faults.Process", false, func(h harness.Harness) bool { return h.Faults.Process != nil }, ""}
	Clients   = Need{"Client", false, func(h harness.Harness) bool { return h.Client != nil }, ""}

	ReadsWrites = Need{"RW", false, func(h harness.Harness) bool { return h.RW != nil }, ""}
)

// claims is met by every Locker in Go, and by a program that claims a capability.
func claims(capability, lacks string) Need {
	return Need{
		Name: "Program." + capability,
		Met:  func(h harness.Harness) bool { return h.Program.Can(capability) },
		Why:  "the program does not claim " + capability + ": " + lacks,
	}
}

// What a program may not claim.
var (
	Extends = claims(stdio.CanExtend, "a hold cannot be extended")
	Tokens  = claims(stdio.CanToken, "a hold has no fencing token")
	Expire  = claims(stdio.CanExpire, "a hold does not end by itself one TTL later")
	Cancels = claims(stdio.CanCancel, "it cannot be told that the time is over before it begins")
	Shares  = claims(stdio.CanShare, "a process serves one Locker")
	Renews  = claims(stdio.CanRenew, "holds are not renewed automatically")

	Limits = Need{
		Name: "Program.lock",
		Met: func(h harness.Harness) bool {
			return h.Program.Can(stdio.CanLock) || h.Program.Can(stdio.CanCancel)
		},
		Why: "the program claims neither lock nor cancel: what it tries has no limit",
	}

	InGo = Need{
		Name: "a Locker in Go",
		Met:  func(h harness.Harness) bool { return h.Program == nil },
		Why:  "the lock is a program: JSON has no such name, and nobody sees its goroutines",
	}
)

// Unmet is a skip that names what of needs h lacks, or nil.
func Unmet(needs []Need, h harness.Harness) error {
	i := slices.IndexFunc(needs, func(n Need) bool { return !n.Met(h) })
	if i < 0 {
		return nil
	}
	if needs[i].Why != "" {
		return engine.Skipped(needs[i].Why)
	}
	return engine.Skipped("the Harness has no " + needs[i].Name)
}
