package conformance

import (
	"slices"
	"strings"

	"github.com/go-locker/locker/internal/stdio"
)

// need is something that a scenario cannot do without.
type need struct {
	name     string
	disturbs bool // whatever uses the backend at the same time
	met      func(Harness) bool
	why      string // it is not met; empty: the Harness has no such field
}

// fault reports whether it is one of Faults.
func (n need) fault() bool { return strings.Contains(n.name, "Faults.") }

var (
	stops     = need{"Faults.StopServer", true, func(h Harness) bool { return h.Faults.StopServer != nil }, ""}
	kills     = need{"Faults.KillServer", true, func(h Harness) bool { return h.Faults.KillServer != nil }, ""}
	wipes     = need{"Faults.WipeServer", true, func(h Harness) bool { return h.Faults.WipeServer != nil }, ""}
	failsOver = need{"Faults.FailOver", true, func(h Harness) bool { return h.Faults.FailOver != nil }, ""}
	clocks    = need{"Faults.MoveClock", true, func(h Harness) bool { return h.Faults.MoveClock != nil }, ""}
	revokes   = need{"Faults.Revoke", false, func(h Harness) bool { return h.Faults.Revoke != nil }, ""}
	links     = need{"Faults.Through", false, func(h Harness) bool { return h.Faults.Through != nil }, ""}
	linkers   = need{"Faults.ThroughClient", false, func(h Harness) bool { return h.Faults.ThroughClient != nil }, ""}
	processes = need{"Faults.Process", false, func(h Harness) bool { return h.Faults.Process != nil }, ""}
	clients   = need{"Client", false, func(h Harness) bool { return h.Client != nil }, ""}

	readsWrites = need{"RW", false, func(h Harness) bool { return h.RW != nil }, ""}
)

// claims is met by every Locker in Go, and by a program that claims a capability.
func claims(capability, lacks string) need {
	return need{
		name: "Program." + capability,
		met:  func(h Harness) bool { return h.Program.Can(capability) },
		why:  "the program does not claim " + capability + ": " + lacks,
	}
}

var (
	extends = claims(stdio.CanExtend, "a hold cannot be extended")
	tokens  = claims(stdio.CanToken, "a hold has no fencing token")
	expire  = claims(stdio.CanExpire, "a hold does not end by itself one TTL later")
	cancels = claims(stdio.CanCancel, "it cannot be told that the time is over before it begins")
	shares  = claims(stdio.CanShare, "a process serves one Locker")
	renews  = claims(stdio.CanRenew, "holds are not renewed automatically")

	limits = need{
		name: "Program.lock",
		met: func(h Harness) bool {
			return h.Program.Can(stdio.CanLock) || h.Program.Can(stdio.CanCancel)
		},
		why: "the program claims neither lock nor cancel: what it tries has no limit",
	}

	inGo = need{
		name: "a Locker in Go",
		met:  func(h Harness) bool { return h.Program == nil },
		why:  "the lock is a program: JSON has no such name, and nobody sees its goroutines",
	}
)

// unmet is a skip that names what of needs h lacks, or nil.
func unmet(needs []need, h Harness) error {
	i := slices.IndexFunc(needs, func(n need) bool { return !n.met(h) })
	if i < 0 {
		return nil
	}
	if needs[i].why != "" {
		return skipped(needs[i].why)
	}
	return skipped("the Harness has no " + needs[i].name)
}
