package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/go-locker/locker"
)

// The exit codes that are ours. Those of sysexits.h are used in its sense, so that nobody has to learn new ones; exitLost is the
// first that it leaves free. 126, 127 and 128+n are the shell's, and timeout's, and env's.
const (
	exitBroken     = 1  // check: a promise was seen broken
	exitUsage      = 64 // EX_USAGE
	exitAway       = 69 // EX_UNAVAILABLE
	exitHeld       = 75 // EX_TEMPFAIL: try again later
	exitLost       = 79
	exitCannotRun  = 126
	exitNotFound   = 127
	exitSignalBase = 128
)

const exitHelp = `Exit codes:
  0         success; of run, that of the command
  1         check, compare: a promise was seen broken
  64        wrong usage: arguments, flags, URL, or what the backend cannot do
  69        the backend is unreachable, or refuses access
  75        another holds the lock, and --no-wait was given or --wait is over
  79        the lock was lost, or not renewed in time, and the command ended
  126, 127  the command cannot be executed, or was not found
  128+n     ended by signal n
  others    of run, that of the command`

// statusError is an exit code that no error of the library stands for. err is nil where there is nothing to say.
type statusError struct {
	code int
	err  error
	// interrupted: SIGINT has ended it, and is to end us, too. A shell whose loop we are in goes on otherwise.
	interrupted bool
}

func (e *statusError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.code)
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

// usagef is the error of a command line that makes no sense.
func usagef(format string, args ...any) error {
	return &statusError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// killedBy is the error of what a signal has ended.
func killedBy(s os.Signal) error {
	if n, ok := s.(syscall.Signal); ok {
		return &statusError{code: exitSignalBase + int(n), interrupted: n == syscall.SIGINT}
	}
	return &statusError{code: exitSignalBase + int(syscall.SIGINT)}
}

// exitCode is the one place where errors become numbers.
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
	case errors.Is(err, locker.ErrLost):
		return exitLost
	case errors.Is(err, locker.ErrHeld):
		return exitHeld
	default:
		return exitAway
	}
}
