package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance/internal/engine"
	"github.com/go-locker/locker/internal/stdio"
)

// carried are the errors that keep their identity between processes.
var carried = []error{locker.ErrHeld, locker.ErrNotHeld, locker.ErrLost}

// told is a Locker that fails with what its name says, and Unlocks when ctx ends.
type told struct{ name string }

func (l told) Lock(context.Context) error {
	for _, err := range carried {
		if err.Error() == l.name {
			return &locker.Error{Op: "lock", Name: "x", Err: fmt.Errorf("as told: %w", err)}
		}
	}
	return nil
}

func (l told) Unlock(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func (l told) Extend(context.Context) error {
	fmt.Println("what a Locker prints is no answer")
	return errors.New("an error of its own")
}

func (l told) FencingToken() uint64 { return 1<<63 + 1 }

// OfItsOwn gives a command a process group.
var OfItsOwn = stdio.OwnGroup

// ServeTold is called by the TestMain of this package, in the processes that these tests start.
func ServeTold() {
	if os.Getenv("LOCKER_TOLD") == "" {
		return
	}
	Serve(func(t TB, name string, _ time.Duration) locker.Locker {
		switch name {
		case "fatal":
			t.Fatalf("no server at %s", "localhost")
		case "none":
			return nil
		}
		return told{name}
	})
}

// EndPrograms ends the processes of a Harness of Exec whose test does not end.
func EndPrograms(h Harness) {
	if h.foreign != nil {
		h.foreign.pool.End()
	}
}

// ServeClaiming is Serve of a program that claims no more than that, and of one client's Lockers if it claims to share.
func ServeClaiming(capabilities []string, h Harness) {
	out := os.Stdout
	os.Stdout = os.Stderr
	if err := newServer(out, h).serve(os.Stdin, stdio.Hello{Capabilities: capabilities}); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// tellers is an env whose processes serve what is told.
func tellers(t *testing.T) *env {
	h := Harness{TTL: time.Second, Faults: Faults{Process: func(TB) *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "LOCKER_TOLD=1")
		return cmd
	}}}
	e := newEnv(t, h)
	t.Cleanup(e.close)
	return e
}

// started starts a process, whose name may have this fail.
func started(e *env, name string) *process {
	var p *process
	done := make(chan struct{})
	go func() {
		defer close(done)
		p = e.process("A", name, time.Second)
	}()
	<-done
	return p
}

func TestServe_errorsKeepTheirIdentity(t *testing.T) {
	e := tellers(t)
	for _, want := range carried {
		err := started(e, want.Error()).lock(t.Context())
		require.ErrorIs(t, err, want)
		for _, other := range carried {
			assert.Equal(t, errors.Is(want, other), errors.Is(err, other), "%v: is it %v?", want, other)
		}
		assert.ErrorContains(t, err, "as told: ", "what it says")
	}
}

func TestServe_answers(t *testing.T) {
	p := started(tellers(t), "x")
	require.NoError(t, p.lock(t.Context()))
	assert.Equal(t, uint64(1<<63+1), p.token())
	assert.EqualError(t, p.extend(), "an error of its own")
}

func TestServe_cancelsCalls(t *testing.T) {
	p := started(tellers(t), "x")
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(10*time.Millisecond, func() { cancel(cause) })
	err := p.l.Unlock(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, cause)
}

func TestServe_endsCallsAtTheirLimit(t *testing.T) {
	p := started(tellers(t), "x")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, p.l.Unlock(ctx), context.DeadlineExceeded)
}

// A ctx that has ended is a limit of 0.
func TestServe_isToldThatTheTimeIsOver(t *testing.T) {
	p := started(tellers(t), "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := p.l.Unlock(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, errGaveUp, "the program has answered")
}

func TestServe_answersWhileACallWaits(t *testing.T) {
	p := started(tellers(t), "x")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.l.Unlock(ctx) }()
	time.Sleep(settle / 5) // the call is under way
	assert.NotZero(t, p.token())
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

func TestServe_fatalfIsTheHarnesss(t *testing.T) {
	for name, want := range map[string]string{"fatal": "no server at localhost", "none": "there is no Locker"} {
		e := tellers(t)
		_, err := e.trial.Run(time.Minute, func() { e.process("A", name, time.Second) })
		var bad *engine.Fatal
		require.ErrorAs(t, err, &bad)
		assert.ErrorContains(t, bad, want)
	}
}

func TestProcess_isStoppedAndContinued(t *testing.T) {
	p := started(tellers(t), "x")
	p.stop()
	answer := make(chan uint64, 1)
	go func() { answer <- p.token() }()
	select {
	case <-answer:
		t.Error("a process that is stopped has answered")
	case <-time.After(50 * time.Millisecond):
	}
	p.resume()
	assert.NotZero(t, <-answer)
}

func TestProcess_thatWasKilledIsAnErrorAndHoldsNothing(t *testing.T) {
	p := started(tellers(t), "x")
	p.kill()
	require.Error(t, p.lock(t.Context()))
	assert.Zero(t, p.token())
}

// TestServe_returnsWhereNobodyHasStartedIt: in every other process a test binary goes on.
func TestServe_returnsWhereNobodyHasStartedIt(t *testing.T) {
	Serve(func(TB, string, time.Duration) locker.Locker { panic("nobody asked") })
}

// TestServe_endsWithTheSuite: nobody is left behind who waits for a lock, when the suite has crashed.
func TestServe_endsWithTheSuite(t *testing.T) {
	p := started(tellers(t), "x")
	p.program.Send(stdio.Request{Op: stdio.CanUnlock, Locker: "a"})
	time.Sleep(settle) // the call is under way
	p.program.CloseInput()
	select {
	case <-p.program.Gone():
	case <-time.After(10 * time.Second):
		t.Fatal("the process goes on")
	}
}

// late takes longer than no time at all.
type late struct{ told }

func (l late) Lock(ctx context.Context) error {
	time.Sleep(50 * time.Millisecond)
	return l.told.Lock(ctx)
}

// A Lock whose ctx ended long ago has as much time to return as any other.
func TestParty_aCallAfterTheEndOfItsContextHasALimit(t *testing.T) {
	e := newEnv(t, Harness{TTL: time.Second})
	t.Cleanup(e.close)
	ctx, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Hour))
	defer cancel()
	_, err := e.trial.Run(time.Minute, func() { _ = e.using(late{told{"x"}}, "A", "x", time.Second).lock(ctx) })
	require.NoError(t, err)
}
