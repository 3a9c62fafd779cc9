// Package program puts a lock that is a program of its own, in any language, through the suite of
// package conformance: [Exec] makes its Harness. [Serve] and [ServeLocks] are for programs in Go.
// docs/evidence/judge-any-language.md is the specification of what the suite and a program say to
// each other.
package program

import (
	"io"
	"os/exec"
	"strings"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/conformance/internal/remote"
	"github.com/go-locker/locker/internal/stdio"
)

// Program is a lock under test that is a program of its own, in any language. It reads requests
// from its standard input and answers on its standard output, in lines of JSON.
// docs/evidence/judge-any-language.md is the specification.
type Program struct {
	// Command returns the command of a new process that serves Lockers. The suite adds to its Env.
	// Several goroutines call it at the same time.
	Command func() *exec.Cmd

	// TTL is the Harness's, in whole milliseconds.
	TTL time.Duration

	// Address, optional, is the program's server, "host:port", or several with commas in between.
	// The program finds it in the environment variable LOCKER_ADDRESS. Where the suite wants to
	// disturb the network, that is the address of a proxy.
	Address string

	// Trace, optional, is where the suite writes what was sent and answered, in order of time.
	Trace io.Writer
}

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
	if unknown := f.Hello.Unknown(); len(unknown) > 0 {
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

// through is the way to each of the servers.
func through(address string, via func(string) string) string {
	var ways []string
	for server := range strings.SplitSeq(address, ",") {
		ways = append(ways, via(server))
	}
	return strings.Join(ways, ",")
}
