package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/go-locker/locker/conformance"
	programs "github.com/go-locker/locker/conformance/program"
	"github.com/go-locker/locker/internal/tb"

	"github.com/go-locker/locker/cmd/locker/internal/job"
)

// execOptions are for a lock that is a program of its own.
type execOptions struct {
	exec    string // the command of the program
	address string // of its server
	server  string // the command of that
	forgets bool   // the server keeps no data
	trace   bool
}

func (o *execOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.exec, "exec", "", "check the lock of this program, a `command` of the shell")
	f.StringVar(&o.address, "address", "", "`host:port` of the program's server, or several with commas")
	f.StringVar(&o.server, "server", "", "a `command` that starts that server, to be stopped and killed")
	f.BoolVar(&o.forgets, "server-forgets", false, "the server may lose its data when it is killed")
	f.BoolVar(&o.trace, "trace", false, "only try the program, and show what is sent and answered; with --run, check these scenarios and show it")
}

// flagFor returns why a scenario was skipped, with the flag that would have it run.
func flagFor(reason string) string {
	for field, flag := range map[string]string{
		"Faults.Through": "--address", "Faults.StopServer": "--server", "Faults.KillServer": "--server",
		"Faults.WipeServer": "--server with --server-forgets", "Client": "the claim share",
	} {
		if strings.HasSuffix(reason, "the Harness has no "+field) {
			return "it needs " + flag
		}
	}
	if strings.HasSuffix(reason, "the Harness has no Faults.ThroughClient") {
		return "it needs --address and the claim renew"
	}
	for _, field := range []string{"Faults.FailOver", "Faults.MoveClock", "Faults.Revoke", "RW"} {
		if strings.HasSuffix(reason, "the Harness has no "+field) {
			return "the protocol for programs has no " + field
		}
	}
	return reason
}

// valid returns an error unless there is either a URL or a program.
func (o *execOptions) valid(urls int) error {
	if o.exec == "" {
		if o.address != "" || o.server != "" || o.forgets || o.trace {
			return usagef("--address, --server, --server-forgets and --trace are for --exec")
		}
		if urls == 0 {
			return usagef("want one URL, as in: locker check redis://localhost:6379; or a program, with --exec")
		}
		return nil
	}
	switch {
	case urls > 0:
		return usagef("--exec takes the place of a URL")
	case o.server != "" && o.address == "":
		return usagef("--server needs --address: where the server is")
	case o.forgets && o.server == "":
		return usagef("--server-forgets is for --server")
	case o.server != "" && runtime.GOOS == "windows":
		return usagef("--server: this system cannot stop processes")
	}
	return nil
}

// shell returns a command of the shell.
func shell(command string) *exec.Cmd {
	if runtime.GOOS == "windows" {
		return exec.Command("cmd", "/C", command)
	}
	return exec.Command("/bin/sh", "-c", command)
}

const programTTL = time.Second

// newProgramExaminer starts the program, and its server if that is ours.
func newProgramExaminer(ctx context.Context, o *checkOptions) (*examiner, error) {
	ttl := o.ttl
	if ttl == 0 {
		ttl = programTTL
	}
	if ttl < 5*time.Millisecond || ttl%time.Millisecond != 0 {
		return nil, usagef("--ttl: must be whole milliseconds, and at least 5ms")
	}
	endOrphans := job.AdoptOrphans()
	e := &examiner{title: "program", ttl: ttl, cleanUp: func() string {
		if left := endOrphans(); left != "" {
			return "left running by the program or its server, and killed: " + left
		}
		return ""
	}}
	program := programs.Program{Command: func() *exec.Cmd { return shell(o.program.exec) }, TTL: ttl, Address: o.program.address}
	if o.program.trace {
		program.Trace = os.Stderr
	}
	var s *ownServer
	if o.program.server != "" {
		var err error
		if s, err = startServer(ctx, o.program.server, o.program.address); err != nil {
			return nil, errors.Join(err, leftError(e.cleanUp()))
		}
	}
	lasts, orphans := tb.New(ctx, nil), e.cleanUp
	e.cleanUp = func() string {
		lasts.End()
		if s != nil {
			s.kill()
		}
		return orphans()
	}
	if err := lasts.Run(func() { e.harness = programs.Exec(lasts, program) }); err != nil {
		return nil, errors.Join(err, leftError(e.cleanUp()))
	}
	claims := programs.ClaimsOf(e.harness)
	if claims.Name != "" {
		e.title = claims.Name
	}
	if len(claims.Unknown) > 0 {
		e.warnings = append(e.warnings, fmt.Sprintf("skipped: the program claims %q, which this suite does not know", claims.Unknown))
	}
	e.probe = e.probeProgram
	if s != nil {
		s.faults(&e.harness.Faults, o.program.forgets, e.probe)
		e.advice = map[string]string{
			"Faults.KillServer": "The server was killed, and is said to keep its data. If it forgets them, give --server-forgets.",
		}
	}
	if err := e.probe(ctx); err != nil {
		return nil, errors.Join(err, leftError(e.cleanUp()))
	}
	return e, nil
}

func leftError(left string) error {
	if left == "" {
		return nil
	}
	return errors.New(left)
}

// fatal runs f, and returns what it called Fatalf with.
func fatal(ctx context.Context, f func(conformance.TB)) error {
	t := tb.New(ctx, nil)
	defer t.End()
	return t.Run(func() { f(t) })
}

// probeProgram locks and unlocks something.
func (e *examiner) probeProgram(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 20*time.Second+e.ttl, errors.New("a Lock of a free lock, and its Unlock, took too long"))
	defer cancel()
	failed := make(chan error, 1)
	if err := fatal(ctx, func(t conformance.TB) {
		l := e.harness.New(t, fmt.Sprintf("probe-%d-%d", os.Getpid(), time.Now().UnixNano()), 10*e.ttl)
		err := l.Lock(ctx)
		if err == nil {
			err = l.Unlock(context.WithoutCancel(ctx))
		}
		failed <- err
	}); err != nil {
		return err
	}
	return <-failed
}

// trace tries a program, and shows what is sent and answered.
func (o *checkOptions) trace(ctx context.Context) error {
	address := o.program.address
	if o.program.server != "" {
		s, err := startServer(ctx, o.program.server, address)
		if err != nil {
			return err
		}
		defer s.kill()
	}
	ttl := o.ttl
	if ttl == 0 {
		ttl = programTTL
	}
	program := programs.Program{
		Command: func() *exec.Cmd { return shell(o.program.exec) }, TTL: ttl, Address: address, Trace: os.Stdout,
	}
	var wrong []string
	if err := fatal(ctx, func(t conformance.TB) { wrong = programs.Try(t, program) }); err != nil {
		return &statusError{code: exitBroken, err: err}
	}
	if len(wrong) > 0 {
		return &statusError{code: exitBroken, err: errors.New("the program does not keep to the protocol:\n  " + strings.Join(wrong, "\n  "))}
	}
	fmt.Println("the program keeps to the protocol; to judge its lock, leave out --trace")
	return nil
}
