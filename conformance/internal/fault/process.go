package fault

import (
	"strings"
	"time"

	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/party"
	"github.com/go-locker/locker/conformance/internal/remote"
	"github.com/go-locker/locker/internal/history"
	"github.com/go-locker/locker/internal/stdio"
)

// Process is a party in a process of its own, which can be stopped.
type Process struct {
	*party.Party
	program *stdio.Program
	pending <-chan stdio.Answer // while it is stopped
	stopped int64               // when, in the record of a trial
}

// StartProcess starts a Process, which is killed when the trial ends.
func StartProcess(e *party.Env, who, name string, ttl time.Duration) *Process {
	cmd := e.Harness.Faults.Process(e)
	if cmd.Env == nil {
		cmd.Env = cmd.Environ()
	}
	cmd.Env = append(cmd.Env, remote.ServedEnv+"=1")
	begun := e.Starting()
	p, err := stdio.Start(cmd, e.Harness.Program.Traced())
	begun()
	if err != nil {
		e.Fatalf("%v", err)
	}
	e.Cleanup(p.End)
	l, err := remote.Open(e, p, stdio.Request{Locker: "a", Name: &name, TTL: stdio.Milliseconds(ttl), Shared: who == e.Reader})
	if err != nil {
		if strings.Contains(err.Error(), remote.ErrNoShares.Error()) {
			e.Skip(remote.ErrNoShares.Error())
		}
		e.Fatalf("%v", err)
	}
	return &Process{Party: e.Using(l, who, name, ttl), program: p}
}

// Stop stops all of the process, and checks that it does not answer.
func (p *Process) Stop() {
	p.Halt()
	p.pending = p.Ask()
	p.Asleep(party.Settle / 2)
}

// Asleep ends the trial if the process has answered, or does so within d.
func (p *Process) Asleep(d time.Duration) {
	if p.Answered(p.pending, d) {
		p.Env.Relies(engine.Idle("Process", "%s was stopped, and answers", p.Who))
	}
}

// Halt stops the process, without the check that it does not answer.
func (p *Process) Halt() {
	p.stopped = p.Env.Record.Time()
	if err := p.program.Stop(); err != nil {
		p.Env.Fatalf("cannot stop %s: %v", p.Who, err)
	}
}

// Resume continues a stopped process, and checks that it was stopped all the time.
func (p *Process) Resume() {
	p.Asleep(0)
	p.Proceed()
}

// Proceed continues a stopped process, without that check.
func (p *Process) Proceed() {
	if err := p.program.Continue(); err != nil {
		p.Env.Fatalf("cannot continue %s: %v", p.Who, err)
	}
	p.Env.Record.FaultOver(history.Fault{Kind: "Process", What: p.Who + ": stopped", From: p.stopped, Mutes: history.ItsVictim, Client: p.ID})
}

// Kill ends the process as a crash does, and checks that it has ended.
func (p *Process) Kill() {
	p.program.Kill()
	for end := time.Now().Add(p.Env.Prompt); p.Answered(p.Ask(), party.Settle); time.Sleep(party.Settle / 10) {
		if time.Now().After(end) {
			p.Env.Relies(engine.Idle("Process", "%s was killed, and answers", p.Who))
		}
	}
}

// Ask asks the process for its token. A process without tokens answers, too.
func (p *Process) Ask() <-chan stdio.Answer {
	_, answer := p.program.Send(stdio.Request{Op: stdio.CanToken, Locker: "a"})
	return answer
}

// Answered reports whether a request is answered within d.
func (p *Process) Answered(answer <-chan stdio.Answer, d time.Duration) bool {
	_, err := p.program.Await(answer, d)
	return err == nil
}
