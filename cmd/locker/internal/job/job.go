// Package job runs a command together with the processes that it starts, as far as the system keeps
// them together: a process group and, on Linux, whatever descends from it; on Windows a job object.
package job

import (
	"errors"
	"os"
	"os/exec"
	"syscall"

	"github.com/go-locker/locker/cmd/locker/internal/outcome"
)

// signalBase is added to the number of the signal that ended a command, as shells do.
const signalBase = 128

// KilledBy returns the error of a command that a signal has ended.
func KilledBy(s os.Signal) error {
	n := s.(syscall.Signal)
	return &outcome.Error{Code: signalBase + int(n), Interrupted: n == os.Interrupt}
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
