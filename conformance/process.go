package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/rpc"
	"os"
	"os/exec"
	"slices"
	"sync/atomic"
	"time"
)

// process is a party in a process of its own, which can be stopped.
type process struct {
	*party
	cmd     *exec.Cmd
	pending *rpc.Call // while it is stopped
}

// process starts one, which is killed when the trial ends.
func (e *env) process(who, name string, ttl time.Duration) *process {
	cmd := e.h.Faults.Process(e)
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	cmd.Env = append(cmd.Env, servedEnv+"=1")
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	ofItsOwn(cmd)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		e.Fatalf("%s: %v", cmd, err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		e.Fatalf("%s: %v", cmd, err)
	}
	if err := cmd.Start(); err != nil {
		e.Fatalf("%s: %v", cmd, err)
	}
	client := rpc.NewClient(stdio{stdout, stdin})
	e.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = client.Close()
		_ = cmd.Wait()
	})
	if err := client.Call("Locker.Open", wanted{name, ttl, who == e.reader}, nil); err != nil {
		if err.Error() == errNoShares.Error() {
			e.skip(err.Error())
		}
		e.Fatalf("%s: %v", cmd, err)
	}
	return &process{e.using(&remote{client: client}, who, name, ttl), cmd, nil}
}

// stop returns when all of the process has stopped, and asks whether it has.
func (p *process) stop() {
	p.halt()
	p.pending = p.ask()
	p.asleep(settle / 2)
}

// asleep ends the trial if the process has answered, or does so within d.
func (p *process) asleep(d time.Duration) {
	if answered(p.pending, d) {
		p.env.relies(idle("Process", "%s was stopped, and answers", p.who))
	}
}

// halt is stop, and asks nothing.
func (p *process) halt() {
	if err := stopProcess(p.cmd.Process); err != nil {
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
	if err := continueProcess(p.cmd.Process); err != nil {
		p.env.Fatalf("cannot continue %s: %v", p.who, err)
	}
}

// kill ends the process as a crash does, and asks whether it has ended.
func (p *process) kill() {
	if err := p.cmd.Process.Kill(); err != nil {
		p.env.Fatalf("cannot kill %s: %v", p.who, err)
	}
	for end := time.Now().Add(p.env.prompt); answered(p.ask(), settle); time.Sleep(settle / 10) {
		if time.Now().After(end) {
			p.env.relies(idle("Process", "%s was killed, and answers", p.who))
		}
	}
}

// ask has the process asked for its token.
func (p *process) ask() *rpc.Call {
	r := p.l.(*remote)
	return r.client.Go("Locker.Call", request{r.calls.Add(1), "FencingToken"}, &reply{}, make(chan *rpc.Call, 1))
}

// answered reports whether a call is answered within d.
func answered(call *rpc.Call, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-call.Done:
		return call.Error == nil
	case <-timer.C:
	}
	select { // it may have come in the same moment
	case <-call.Done:
		return call.Error == nil
	default:
		return false
	}
}

// remote is the Locker of a process.
type remote struct {
	client *rpc.Client
	calls  atomic.Uint64
}

// Lock is the process's.
func (r *remote) Lock(ctx context.Context) error { return r.call(ctx, "Lock", &reply{}) }

// Unlock is the process's.
func (r *remote) Unlock(ctx context.Context) error { return r.call(ctx, "Unlock", &reply{}) }

// Extend is the process's.
func (r *remote) Extend(ctx context.Context) error { return r.call(ctx, "Extend", &reply{}) }

// FencingToken is the process's, or 0 if that does not answer.
func (r *remote) FencingToken() uint64 {
	var answer reply
	if err := r.call(context.Background(), "FencingToken", &answer); err != nil {
		return 0
	}
	return answer.Token
}

// call returns when the process has answered, or is no more, even if ctx ends: a process that is stopped says nothing.
func (r *remote) call(ctx context.Context, op string, answer *reply) error {
	id := r.calls.Add(1)
	call := r.client.Go("Locker.Call", request{id, op}, answer, make(chan *rpc.Call, 1))
	select {
	case <-call.Done:
	case <-ctx.Done():
		r.client.Go("Locker.Cancel", id, nil, make(chan *rpc.Call, 1))
		<-call.Done
	}
	switch {
	case call.Error != nil:
		return fmt.Errorf("the process: %w", call.Error)
	case !answer.Failed:
		return nil
	case ctx.Err() != nil:
		return errors.Join(ctx.Err(), context.Cause(ctx), &remoteError{*answer})
	default:
		return &remoteError{*answer}
	}
}

// remoteError is an error of the process.
type remoteError struct{ answer reply }

func (e *remoteError) Error() string { return e.answer.Text }

// Is says what the error was before it came here.
func (e *remoteError) Is(target error) bool {
	i := slices.Index(sentinels, target)
	return i >= 0 && slices.Contains(e.answer.Is, i)
}
