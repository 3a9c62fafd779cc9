package conformance

import (
	"os/exec"
	"strings"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/stdio"
)

// Exec returns the Harness of a program, with the faults Process and, if there is an Address,
// Through. The caller may add others, such as those of the server. Scenarios that need what the
// program does not claim are skipped, and say so. Exec starts the program once, to ask what it can
// do, and calls t.Fatalf if it does not answer as it should. Processes whose Lockers were closed
// properly are used again, until the Cleanup functions of t run.
func Exec(t TB, p Program) Harness {
	t.Helper()
	if p.Command == nil || p.TTL <= 0 || p.TTL%time.Millisecond != 0 {
		t.Fatalf("conformance: a Program needs a Command, and a TTL of whole milliseconds")
	}
	f := &foreign{program: p, trace: stdio.NewTrace(p.Trace)}
	first, err := f.start(p.Address)
	if err != nil {
		t.Fatalf("%v", err)
	}
	f.hello = first.Hello
	f.pool.Put(first)
	t.Cleanup(f.pool.End)
	if unknown := f.claims().Unknown; len(unknown) > 0 {
		t.Logf("skipped: the program claims %q, which this suite does not know", unknown)
	}
	h := Harness{TTL: p.TTL, Promises: promisesOf(f.hello.Promises), foreign: f}
	h.New = func(t TB, name string, ttl time.Duration) locker.Locker { return f.open(t, name, ttl, p.Address) }
	if f.can(stdio.CanShare) {
		h.Client = func(t TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			return f.client(t, ttl, renew, p.Address)
		}
	}
	if p.Address != "" {
		h.Faults.Through = func(t TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
			return f.open(t, name, ttl, through(p.Address, via))
		}
	}
	if p.Address != "" && f.can(stdio.CanRenew) {
		h.Faults.ThroughClient = func(t TB, ttl time.Duration, renew bool, via func(string) string) func(string) locker.Locker {
			return f.client(t, ttl, renew, through(p.Address, via))
		}
	}
	if stdio.StopsProcesses {
		h.Faults.Process = func(TB) *exec.Cmd { return f.command(p.Address) }
	}
	return h
}

// ClaimsOf returns what the program says of itself, if h is a Harness that [Exec] has made.
func ClaimsOf(h Harness) Claims {
	if h.foreign == nil {
		return Claims{}
	}
	return h.foreign.claims()
}

// through is the way to each of the servers.
func through(address string, via func(string) string) string {
	var ways []string
	for server := range strings.SplitSeq(address, ",") {
		ways = append(ways, via(server))
	}
	return strings.Join(ways, ",")
}
