package program

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
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/conformance/internal/remote"
	"github.com/go-locker/locker/internal/stdio"
)

func TestMain(m *testing.M) {
	Serve(func(t conformance.TB, name string, _ time.Duration) locker.Locker {
		switch name {
		case "fatal":
			t.Fatalf("no server at %s", "localhost")
		case "none":
			return nil
		}
		return told{name}
	})
	os.Exit(m.Run())
}

// carried are the errors that keep their identity between processes.
var carried = []error{locker.ErrHeld, locker.ErrNotHeld, locker.ErrLost}

// told is a Locker whose Lock returns the error that its name says, and whose Unlock returns when
// ctx ends.
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

// process starts a process that serves such Lockers.
func process(t *testing.T) *stdio.Program {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), remote.ServedEnv+"=1")
	p, err := stdio.Start(cmd, nil)
	require.NoError(t, err)
	t.Cleanup(p.End)
	return p
}

// open opens a Locker of a process of its own.
func open(t *testing.T, name string) (*remote.Locker, *stdio.Program) {
	t.Helper()
	p := process(t)
	l, err := remote.Open(t, p, stdio.Request{Locker: "a", Name: &name, TTL: 1000})
	require.NoError(t, err)
	return l, p
}

func TestServe_errorsKeepTheirIdentity(t *testing.T) {
	for _, want := range carried {
		l, _ := open(t, want.Error())
		err := l.Lock(t.Context())
		require.ErrorIs(t, err, want)
		for _, other := range carried {
			assert.Equal(t, errors.Is(want, other), errors.Is(err, other), "%v: is it %v?", want, other)
		}
		assert.ErrorContains(t, err, "as told: ", "what it says")
	}
}

func TestServe_answers(t *testing.T) {
	l, _ := open(t, "x")
	require.NoError(t, l.Lock(t.Context()))
	assert.Equal(t, uint64(1<<63+1), l.FencingToken())
	assert.EqualError(t, l.Extend(t.Context()), "an error of its own")
}

// A ctx ends a call in the process, which answers that it gave up.
func TestServe_endsCallsWithTheirCtx(t *testing.T) {
	l, _ := open(t, "x")
	for what, make := range map[string]func() (context.Context, context.CancelFunc){
		"cancelled": func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(10*time.Millisecond, func() { cancel(errors.New("enough")) })
			return ctx, func() { cancel(nil) }
		},
		"limited": func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 30*time.Millisecond)
		},
		"over": func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), 0) },
	} {
		ctx, cancel := make()
		err := l.Unlock(ctx)
		require.ErrorIs(t, err, ctx.Err(), what)
		require.ErrorIs(t, err, context.Cause(ctx), what)
		require.ErrorIs(t, err, remote.ErrGaveUp, "%s: the program has answered", what)
		cancel()
	}
}

func TestServe_answersWhileACallWaits(t *testing.T) {
	l, _ := open(t, "x")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- l.Unlock(ctx) }()
	time.Sleep(settle / 5) // the call is under way
	assert.NotZero(t, l.FencingToken())
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
}

func TestServe_fatalfIsTheHarnesss(t *testing.T) {
	for name, want := range map[string]string{"fatal": "no server at localhost", "none": "there is no Locker"} {
		_, err := remote.Open(t, process(t), stdio.Request{Locker: "a", Name: &name, TTL: 1000})
		assert.ErrorContains(t, err, want)
	}
}

// TestServe_returnsWhereNobodyHasStartedIt: in every other process a test binary goes on.
func TestServe_returnsWhereNobodyHasStartedIt(t *testing.T) {
	Serve(func(conformance.TB, string, time.Duration) locker.Locker { panic("nobody asked") })
}

// TestServe_endsWithTheSuite: nobody is left behind who waits for a lock, when the suite has
// crashed.
func TestServe_endsWithTheSuite(t *testing.T) {
	_, p := open(t, "x")
	p.Send(stdio.Request{Op: stdio.CanUnlock, Locker: "a"})
	time.Sleep(settle) // the call is under way
	p.CloseInput()
	select {
	case <-p.Gone():
	case <-time.After(10 * time.Second):
		t.Fatal("the process goes on")
	}
}
