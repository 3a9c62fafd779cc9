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
	cmd *exec.Cmd
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
	if err := client.Call("Locker.Open", wanted{name, ttl}, nil); err != nil {
		e.Fatalf("%s: %v", cmd, err)
	}
	return &process{&party{env: e, who: who, name: name, ttl: ttl, l: &remote{client: client}}, cmd}
}

// stop returns when all of the process has stopped.
func (p *process) stop() {
	if err := stopProcess(p.cmd.Process); err != nil {
		p.env.Fatalf("cannot stop %s: %v", p.who, err)
	}
}

// resume undoes stop.
func (p *process) resume() {
	if err := continueProcess(p.cmd.Process); err != nil {
		p.env.Fatalf("cannot continue %s: %v", p.who, err)
	}
}

// kill ends the process as a crash does.
func (p *process) kill() {
	if err := p.cmd.Process.Kill(); err != nil {
		p.env.Fatalf("cannot kill %s: %v", p.who, err)
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
