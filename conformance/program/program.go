package conformance

import (
	"fmt"
	"io"
	"os/exec"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/stdio"
)

// AddressEnv is the environment variable that tells a [Program] where its server is.
const AddressEnv = "LOCKER_ADDRESS"

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

// Claims is what a program says of itself.
type Claims struct {
	Name         string
	Capabilities []string // that the suite knows
	Unknown      []string // that it does not know, and does not ask for
}

// foreign is what the suite knows of a Program.
type foreign struct {
	program Program
	hello   stdio.Hello
	trace   *stdio.Trace
	lockers atomic.Uint64
	pool    stdio.Pool
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
	if trial, ok := t.(interface{ starting() func() }); ok {
		begun := trial.starting()
		defer begun()
	}
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

// client makes the Lockers of one process.
func (f *foreign) client(t TB, ttl time.Duration, renew bool, address string) func(name string) locker.Locker {
	p := f.startFor(t, address)
	return func(name string) locker.Locker { return f.openIn(t, p, name, ttl, renew) }
}
