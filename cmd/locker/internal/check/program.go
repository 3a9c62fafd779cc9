package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/go-locker/locker/cmd/locker/internal/job"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
	"github.com/go-locker/locker/cmd/locker/internal/server"
	"github.com/go-locker/locker/conformance"
	programs "github.com/go-locker/locker/conformance/program"
	"github.com/go-locker/locker/internal/tb"
)

// Program is a lock that is a program of its own. Exec and Server are commands of the shell.
type Program struct {
	Exec    string
	Address string // of its server
	Server  string
	Forgets bool      // the server keeps no data
	Trace   io.Writer // gets the requests and replies; nil: nobody does
}

const programTTL = time.Second

// newProgramExaminer starts the program, and its server if that is ours.
func newProgramExaminer(ctx context.Context, o *Options) (_ *examiner, err error) {
	ttl := cmp.Or(o.TTL, programTTL)
	if ttl < 5*time.Millisecond || ttl%time.Millisecond != 0 {
		return nil, outcome.Usagef("--ttl: must be whole milliseconds, and at least 5ms")
	}
	endOrphans := job.AdoptOrphans()
	e := &examiner{title: "program", ttl: ttl, cleanUp: func(error) string {
		if left := endOrphans(); left != "" {
			return "left running by the program or its server, and killed: " + left
		}
		return ""
	}}
	defer func() {
		if err == nil {
			return
		}
		if left := e.cleanUp(err); left != "" {
			err = errors.Join(err, errors.New(left))
		}
	}()
	var s *server.Server
	if o.Program.Server != "" {
		if s, err = server.Start(ctx, o.Program.Server, o.Program.Address); err != nil {
			return nil, err
		}
	}
	lasts, orphans := tb.New(ctx, nil), e.cleanUp
	e.cleanUp = func(after error) string {
		lasts.End()
		if s != nil {
			s.Kill()
		}
		return orphans(after)
	}
	if err := lasts.Run(func() { e.harness = programs.Exec(lasts, o.program(ttl)) }); err != nil {
		return nil, err
	}
	hello := e.harness.Program.Hello
	if hello.Name != "" {
		e.title = hello.Name
	}
	if unknown := hello.Unknown(); len(unknown) > 0 {
		e.warnings = append(e.warnings,
			fmt.Sprintf("skipped: the program claims %q, which this suite does not know", unknown))
	}
	e.probe = e.probeProgram
	if s != nil {
		s.Faults(&e.harness.Faults, o.Program.Forgets, e.probe)
		e.advice = map[string]string{
			"Faults.KillServer": "The server was killed, and is said to keep its data. If it forgets them, give --server-forgets.",
		}
	}
	if err := e.probe(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// fatal runs f, and returns what it called Fatalf with. What f logs is dropped.
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

// Try tests whether a program keeps to the protocol. Requests and replies go to o.Program.Trace.
func Try(ctx context.Context, o *Options) error {
	if o.Program.Server != "" {
		s, err := server.Start(ctx, o.Program.Server, o.Program.Address)
		if err != nil {
			return err
		}
		defer s.Kill()
	}
	var wrong []string
	if err := fatal(ctx, func(t conformance.TB) { wrong = programs.Try(t, o.program(cmp.Or(o.TTL, programTTL))) }); err != nil {
		return &outcome.Error{Code: outcome.Broken, Err: err}
	}
	if len(wrong) > 0 {
		return outcome.Errorf(outcome.Broken, "the program does not keep to the protocol:\n  %s", strings.Join(wrong, "\n  "))
	}
	return nil
}

func (o *Options) program(ttl time.Duration) programs.Program {
	return programs.Program{
		Command: func() *exec.Cmd { return server.Shell(o.Program.Exec) }, TTL: ttl, Address: o.Program.Address, Trace: o.Program.Trace,
	}
}
