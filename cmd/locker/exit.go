package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/job"
)

// The exit codes. Those of sysexits.h have its meaning, so that nobody has to learn new ones; exitLost is the first that it
// leaves free. 126, 127 and 128+n are used as by the shell, timeout and env.
const (
	exitBroken      = 1  // check: a promise is broken
	exitUsage       = 64 // EX_USAGE
	exitUnreachable = 69 // EX_UNAVAILABLE
	exitHeld        = 75 // EX_TEMPFAIL: try again later
	exitLost        = 79
	exitCannotRun   = 126
	exitNotFound    = 127
)

const exitHelp = `Exit codes:
  0         success; run: the command has ended with 0
  1         check, compare: a promise is broken
  64        wrong usage: arguments, flags, URL, or something that the backend
            cannot do
  69        the backend is unreachable, or refuses access; check: a promise
            could not be decided, and none is broken
  75        another holds the lock, and --no-wait was given or the time of
            --wait is over; release: the present hold is not that of --hold
  79        the lock was lost, or not renewed in time, and the command was
            ended; release: nobody holds the lock
  126, 127  the command cannot be executed, or was not found
  128+n     ended by signal n
  others    run: the exit code of the command`

// statusError is an exit code that no error of the library has. err is nil if there is nothing to print.
type statusError struct {
	code int
	err  error
	// interrupted: SIGINT has ended the command, and must end us, too. Otherwise a loop of the shell goes on.
	interrupted bool
}

func (e *statusError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

// usagef returns the error of a wrong command line.
func usagef(format string, args ...any) error {
	return &statusError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// killedBy returns the error of a command that a signal has ended.
func killedBy(s os.Signal) error {
	if n, ok := s.(syscall.Signal); ok {
		return &statusError{code: job.SignalBase + int(n), interrupted: n == syscall.SIGINT}
	}
	return &statusError{code: job.SignalBase + int(syscall.SIGINT)}
}

// exitCode returns the exit code of an error.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if s, ok := errors.AsType[*statusError](err); ok {
		return s.code
	}
	switch {
	case errors.Is(err, locker.ErrUnsupported):
		return exitUsage
	case errors.Is(err, locker.ErrLost), errors.Is(err, locker.ErrNotHeld):
		return exitLost
	case errors.Is(err, locker.ErrHeld):
		return exitHeld
	default:
		return exitUnreachable
	}
}
