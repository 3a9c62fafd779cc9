package conformance

import (
	"strings"
	"time"

	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/conformance/internal/remote"
	"github.com/go-locker/locker/internal/history"
	"github.com/go-locker/locker/internal/stdio"
)

// process is a party in a process of its own, which can be stopped.
type process struct {
	*party
	program *stdio.Program
	pending <-chan stdio.Answer // while it is stopped
	stopped int64               // when, in the record of a trial
}

// process starts one, which is killed when the trial ends.
func (e *env) process(who, name string, ttl time.Duration) *process {
	cmd := e.h.Faults.Process(e)
	if cmd.Env == nil {
		cmd.Env = cmd.Environ()
	}
	cmd.Env = append(cmd.Env, remote.ServedEnv+"=1")
	begun := e.Starting()
	p, err := stdio.Start(cmd, e.h.Program.Traced())
	begun()
	if err != nil {
		e.Fatalf("%v", err)
	}
	e.Cleanup(p.End)
	l, err := remote.Open(e, p, stdio.Request{Locker: "a", Name: &name, TTL: stdio.Milliseconds(ttl), Shared: who == e.reader})
	if err != nil {
		if strings.Contains(err.Error(), remote.ErrNoShares.Error()) {
			e.skip(remote.ErrNoShares.Error())
		}
		e.Fatalf("%v", err)
	}
	return &process{party: e.using(l, who, name, ttl), program: p}
}

// stop returns when all of the process has stopped, and asks whether it has.
func (p *process) stop() {
	p.halt()
	p.pending = p.ask()
	p.asleep(settle / 2)
}

// asleep ends the trial if the process has answered, or does so within d.
func (p *process) asleep(d time.Duration) {
	if p.answered(p.pending, d) {
		p.env.relies(engine.Idle("Process", "%s was stopped, and answers", p.who))
	}
}

// halt is stop, and asks nothing.
func (p *process) halt() {
	p.stopped = p.env.record.now()
	if err := p.program.Stop(); err != nil {
		p.env.Fatalf("cannot stop %s: %v", p.who, err)
	}
}

// resume undoes stop, and asks whether the process was stopped all the time.
func (p *process) resume() {
	p.asleep(0)
	p.proceed()
}

// proceed is resume, and asks nothing.
func (p *process) proceed() {
	if err := p.program.Continue(); err != nil {
		p.env.Fatalf("cannot continue %s: %v", p.who, err)
	}
	p.env.record.befell(history.Fault{Kind: "Process", What: p.who + ": stopped", From: p.stopped, Mutes: history.ItsVictim, Client: p.id})
}

// kill ends the process as a crash does, and asks whether it has ended.
func (p *process) kill() {
	p.program.Kill()
	for end := time.Now().Add(p.env.prompt); p.answered(p.ask(), settle); time.Sleep(settle / 10) {
		if time.Now().After(end) {
			p.env.relies(engine.Idle("Process", "%s was killed, and answers", p.who))
		}
	}
}

// ask has the process asked for its token. One that has none answers, too.
func (p *process) ask() <-chan stdio.Answer {
	_, answer := p.program.Send(stdio.Request{Op: stdio.CanToken, Locker: "a"})
	return answer
}

// answered reports whether a request is answered within d.
func (p *process) answered(answer <-chan stdio.Answer, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-answer:
		return true
	case <-p.program.Gone():
	case <-timer.C:
	}
	select { // it may have come in the same moment
	case <-answer:
		return true
	default:
		return false
	}
}
