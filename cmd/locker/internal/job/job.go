// Package job runs a command together with the processes that it starts, as far as the system keeps
// them together: a process group and, on Linux, whatever descends from it; on Windows a job object.
package job

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-locker/locker/cmd/locker/internal/outcome"
)

// signalBase is added to the number of the signal that ended a command, as shells do.
const signalBase = 128

// KilledBy returns the error of a command that a signal has ended.
func KilledBy(s os.Signal) error {
	n := s.(syscall.Signal)
	return &outcome.Error{Code: signalBase + int(n), Interrupted: n == os.Interrupt}
}

// Interruptible returns a context that ends when grace has passed since a signal came from signals,
// of [Forward], with the signal's error as its cause. A second signal ends the program at once. stop
// has later signals stay in the channel, and returns the error of the one that came, or nil.
func Interruptible(parent context.Context, signals chan os.Signal, grace time.Duration) (_ context.Context, stop func() error) {
	ctx, cancel := context.WithCancelCause(parent)
	var killed error
	over, heard := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(heard)
		select {
		case s := <-signals:
			signal.Stop(signals)
			killed = KilledBy(s)
			time.AfterFunc(grace, func() { cancel(killed) })
			time.AfterFunc(grace+time.Second, func() {
				fmt.Fprintln(os.Stderr, "locker: interrupted, and cleaning up; a second signal ends this at once")
			})
		case <-over:
		}
	}()
	return ctx, func() error {
		close(over)
		<-heard
		cancel(nil)
		return killed
	}
}

// Status returns an error with the exit code of a command that ended by itself, nil if that is 0.
func Status(err error) error {
	if err == nil {
		return nil
	}
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return &outcome.Error{Code: outcome.CannotRun, Err: err}
	}
	return &outcome.Error{Code: ExitCode(exit.ProcessState), Interrupted: interrupted(exit.ProcessState)}
}

// Job is a command that [Start] has started, with the processes that it has started.
type Job interface {
	Signal(s os.Signal)
	Terminate() // the command may ignore it
	Kill()      // it cannot ignore this
	// Wait returns when the command has ended. If it was stopped, it asks whether it may go on.
	Wait(mayGoOn func() bool)
	Remains() bool // whether another process of the job is known to run
	Reap() error   // how the command ended
}
