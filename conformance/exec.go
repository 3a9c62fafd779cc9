package conformance

import (
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/stdio"
)

// AddressEnv is the environment variable that tells a [Program] where its server is.
const AddressEnv = "LOCKER_ADDRESS"

// Program is a lock under test that is a program of its own, in any language. It reads requests
// from its standard input and answers on its standard output, in lines of JSON.
// docs/judge-any-language.md is the specification.
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

	// Trace, optional, is written what was sent and answered, in order of time.
	Trace io.Writer
}

// foreign is what the suite knows of a Program.
type foreign struct {
	program Program
	hello   stdio.Hello
	trace   *stdio.Trace
	lockers atomic.Uint64
	pool    stdio.Pool
}

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
		h.Client = f.client
	}
	if p.Address != "" {
		h.Faults.Through = func(t TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
			return f.open(t, name, ttl, through(p.Address, via))
		}
	}
	if p.Address != "" && f.can(stdio.CanRenew) {
		h.Faults.ThroughRenewing = func(t TB, name string, ttl time.Duration, via func(string) string) locker.Locker {
			return f.openIn(t, f.startFor(t, through(p.Address, via)), name, ttl, true)
		}
	}
	if stdio.StopsProcesses {
		h.Faults.Process = func(TB) *exec.Cmd { return f.command(p.Address) }
	}
	return h
}

// Claims is what a program says of itself.
type Claims struct {
	Name         string
	Capabilities []string // that the suite knows
	Unknown      []string // that it does not know, and does not ask for
}

// ClaimsOf returns what the program of a Harness of [Exec] says of itself.
func ClaimsOf(h Harness) Claims {
	if h.foreign == nil {
		return Claims{}
	}
	return h.foreign.claims()
}

func (f *foreign) claims() Claims {
	c := Claims{Name: f.hello.Name}
	for _, capability := range f.hello.Capabilities {
		if slices.Contains(stdio.Capabilities, capability) {
			c.Capabilities = append(c.Capabilities, capability)
		} else {
			c.Unknown = append(c.Unknown, capability)
		}
	}
	return c
}

// through is the way to each of the servers.
func through(address string, via func(string) string) string {
	var ways []string
	for server := range strings.SplitSeq(address, ",") {
		ways = append(ways, via(server))
	}
	return strings.Join(ways, ",")
}

func (f *foreign) can(capability string) bool { return f.hello.Can(capability) }

// traced is nil where there is no program, or nobody wants to know.
func (f *foreign) traced() *stdio.Trace {
	if f == nil {
		return nil
	}
	return f.trace
}

func (f *foreign) command(address string) *exec.Cmd {
	cmd := f.program.Command()
	if cmd.Env == nil {
		cmd.Env = cmd.Environ()
	}
	if address != "" {
		cmd.Env = append(cmd.Env, AddressEnv+"="+address)
	}
	return cmd
}

func (f *foreign) start(address string) (*stdio.Program, error) {
	return stdio.Start(f.command(address), f.trace)
}

// startFor starts a process that ends with t, or is used again then.
func (f *foreign) startFor(t TB, address string) *stdio.Program {
	again := address == f.program.Address // the way there is nobody's own
	if again {
		if p := f.pool.Take(); p != nil {
			t.Cleanup(func() { f.pool.Put(p) })
			return p
		}
	}
	p, err := f.start(address)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if again {
		t.Cleanup(func() { f.pool.Put(p) })
	} else {
		t.Cleanup(p.End)
	}
	return p
}

// open makes a Locker in a process of its own.
func (f *foreign) open(t TB, name string, ttl time.Duration, address string) locker.Locker {
	return f.openIn(t, f.startFor(t, address), name, ttl, false)
}

func (f *foreign) openIn(t TB, p *stdio.Program, name string, ttl time.Duration, renew bool) locker.Locker {
	l, err := openRemote(t, p, stdio.Request{Locker: fmt.Sprint("l", f.lockers.Add(1)), Name: &name, TTL: stdio.Milliseconds(ttl), Renew: renew})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return l
}

// client is the Harness's Client: a process is one.
func (f *foreign) client(t TB, ttl time.Duration, renew bool) func(name string) locker.Locker {
	p := f.startFor(t, f.program.Address)
	return func(name string) locker.Locker { return f.openIn(t, p, name, ttl, renew) }
}

// crowd makes Lockers of many names, in a few processes.
func (e *env) crowd() func(who, name string, ttl time.Duration) *party {
	if e.h.foreign == nil {
		return e.party
	}
	var programs []*stdio.Program
	for range 2 {
		programs = append(programs, e.h.foreign.startFor(e, e.h.foreign.program.Address))
	}
	next := 0
	return func(who, name string, ttl time.Duration) *party {
		p := programs[next%len(programs)]
		next++
		return e.using(e.h.foreign.openIn(e, p, name, ttl, false), who, name, ttl)
	}
}

// claims is met by every Locker in Go, and by a program that claims a capability.
func claims(capability, lacks string) need {
	return need{
		name: "Program." + capability,
		met:  func(h Harness) bool { return h.foreign == nil || h.foreign.can(capability) },
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
			return h.foreign == nil || h.foreign.can(stdio.CanLock) || h.foreign.can(stdio.CanCancel)
		},
		why: "the program claims neither lock nor cancel: what it tries has no limit",
	}

	inGo = need{
		name: "a Locker in Go",
		met:  func(h Harness) bool { return h.foreign == nil },
		why:  "the lock is a program: JSON has no such name, and nobody sees its goroutines",
	}
)
