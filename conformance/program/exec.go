package program

import (
	"os/exec"
	"strings"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/conformance/internal/remote"
	"github.com/go-locker/locker/internal/stdio"
)

// Exec returns the Harness of a program, with the faults Process and, if there is an Address,
// Through. The caller may add others, such as those of the server. Scenarios that need what the
// program does not claim are skipped, and say so. Exec starts the program once, to ask what it can
// do, and calls t.Fatalf if it does not answer as it should. Processes whose Lockers were closed
// properly are used again, until the Cleanup functions of t run.
func Exec(t conformance.TB, p Program) conformance.Harness {
	t.Helper()
	if p.Command == nil || p.TTL <= 0 || p.TTL%time.Millisecond != 0 {
		t.Fatalf("program: a Program needs a Command, and a TTL of whole milliseconds")
	}
	f := launcherOf(p)
	first, err := f.Start(p.Address)
	if err != nil {
		t.Fatalf("%v", err)
	}
	f.Hello = first.Hello
	f.Pool.Put(first)
	t.Cleanup(f.Pool.End)
	if unknown := claimsOf(f.Hello).Unknown; len(unknown) > 0 {
		t.Logf("skipped: the program claims %q, which this suite does not know", unknown)
	}
	h := conformance.Harness{TTL: p.TTL, Promises: promisesOf(f.Hello.Promises), Program: f}
	h.New = func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
		return f.Open(t, name, ttl, p.Address)
	}
	if f.Can(stdio.CanShare) {
		h.Client = func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			return f.Client(t, ttl, renew, p.Address)
		}
	}
	if p.Address != "" {
		h.Faults.Through = func(t conformance.TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
			return f.Open(t, name, ttl, through(p.Address, via))
		}
	}
	if p.Address != "" && f.Can(stdio.CanRenew) {
		h.Faults.ThroughClient = func(t conformance.TB, ttl time.Duration, renew bool, via func(string) string) func(string) locker.Locker {
			return f.Client(t, ttl, renew, through(p.Address, via))
		}
	}
	if stdio.StopsProcesses {
		h.Faults.Process = func(conformance.TB) *exec.Cmd { return f.At(p.Address) }
	}
	return h
}

func launcherOf(p Program) *remote.Launcher {
	return &remote.Launcher{Command: p.Command, Address: p.Address, Trace: stdio.NewTrace(p.Trace)}
}

// ClaimsOf returns what the program says of itself, if h is a Harness that [Exec] has made.
func ClaimsOf(h conformance.Harness) Claims {
	if h.Program == nil {
		return Claims{}
	}
	return claimsOf(h.Program.Hello)
}

// through is the way to each of the servers.
func through(address string, via func(string) string) string {
	var ways []string
	for server := range strings.SplitSeq(address, ",") {
		ways = append(ways, via(server))
	}
	return strings.Join(ways, ",")
}
