package remote

import (
	"fmt"
	"os/exec"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/stdio"
)

// ServedEnv is set in the processes that the suite starts by Faults.Process.
const ServedEnv = "LOCKER_CONFORMANCE_PROCESS"

// TB is the part of conformance.TB that a Locker needs.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
	Cleanup(f func())
}

// Launcher starts the processes of a program.
type Launcher struct {
	Command func() *exec.Cmd // of a new process
	Address string           // of its server, or ""
	Hello   stdio.Hello
	Trace   *stdio.Trace
	Pool    stdio.Pool

	lockers atomic.Uint64
}

// Can reports whether the program claims a capability. Without a program, the Lockers are in Go,
// and can do all.
func (f *Launcher) Can(capability string) bool { return f == nil || f.Hello.Can(capability) }

// Traced is nil if there is no program, or no trace is wanted.
func (f *Launcher) Traced() *stdio.Trace {
	if f == nil {
		return nil
	}
	return f.Trace
}

// At returns the command of a new process, whose server is at address.
func (f *Launcher) At(address string) *exec.Cmd {
	cmd := f.Command()
	if cmd.Env == nil {
		cmd.Env = cmd.Environ()
	}
	if address != "" {
		cmd.Env = append(cmd.Env, stdio.AddressEnv+"="+address)
	}
	return cmd
}

// Start starts a process.
func (f *Launcher) Start(address string) (*stdio.Program, error) {
	return stdio.Start(f.At(address), f.Trace)
}

// StartFor starts a process, which ends with t or is reused then.
func (f *Launcher) StartFor(t TB, address string) *stdio.Program {
	again := address == f.Address // the way there is nobody's own
	if trial, ok := t.(interface{ Starting() func() }); ok {
		begun := trial.Starting()
		defer begun()
	}
	if again {
		if p := f.Pool.Take(); p != nil {
			t.Cleanup(func() { f.Pool.Put(p) })
			return p
		}
	}
	p, err := f.Start(address)
	if err != nil {
		t.Fatalf("%v", err)
	}
	if again {
		t.Cleanup(func() { f.Pool.Put(p) })
	} else {
		t.Cleanup(p.End)
	}
	return p
}

// Open makes a Locker in a process of its own.
func (f *Launcher) Open(t TB, name string, ttl time.Duration, address string) locker.Locker {
	return f.OpenIn(t, f.StartFor(t, address), name, ttl, false)
}

// OpenIn makes a Locker in a process.
func (f *Launcher) OpenIn(t TB, p *stdio.Program, name string, ttl time.Duration, renew bool) locker.Locker {
	l, err := Open(t, p, stdio.Request{Locker: fmt.Sprint("l", f.lockers.Add(1)), Name: &name, TTL: stdio.Milliseconds(ttl), Renew: renew})
	if err != nil {
		t.Fatalf("%v", err)
	}
	return l
}

// Client makes the Lockers of one process.
func (f *Launcher) Client(t TB, ttl time.Duration, renew bool, address string) func(name string) locker.Locker {
	p := f.StartFor(t, address)
	return func(name string) locker.Locker { return f.OpenIn(t, p, name, ttl, renew) }
}
