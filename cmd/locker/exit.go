package main

import (
	"errors"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/cmd/locker/internal/outcome"
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

// exitCode returns the exit code of an error.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	if o, ok := errors.AsType[*outcome.Error](err); ok {
		return o.Code
	}
	switch {
	case errors.Is(err, locker.ErrUnsupported):
		return outcome.Usage
	case errors.Is(err, locker.ErrLost), errors.Is(err, locker.ErrNotHeld):
		return outcome.Lost
	case errors.Is(err, locker.ErrHeld):
		return outcome.Held
	default:
		return outcome.Unreachable
	}
}
