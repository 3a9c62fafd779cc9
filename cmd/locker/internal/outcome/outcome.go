// Package outcome has the ends that a command line may come to, each with its exit code.
package outcome

import "fmt"

// The exit codes. Codes that sysexits.h defines keep their meaning, so that nobody has to learn new
// ones; Lost is the first code that it leaves free. 126, 127 and 128+n are used as by the shell,
// timeout and env.
const (
	Broken      = 1  // check: a promise is broken
	Usage       = 64 // EX_USAGE: arguments, flags, URL, or something that the backend cannot do
	Unreachable = 69 // EX_UNAVAILABLE: the backend, or a promise could not be decided
	Held        = 75 // EX_TEMPFAIL: by another, try again later
	Lost        = 79 // the lock, or nobody holds it
	CannotRun   = 126
	NotFound    = 127 // the command
)

// Error is an outcome that is not an error of the library.
type Error struct {
	Code int   // one of these, or that of a command, of a signal, or of the user's choice
	Err  error // nil: there is nothing to print
	// Interrupted: SIGINT has ended the command, and must end us, too: otherwise a loop of the
	// shell goes on.
	Interrupted bool
}

// Error returns the text of Err.
func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an outcome with that exit code.
func Errorf(code int, format string, args ...any) error {
	return &Error{Code: code, Err: fmt.Errorf(format, args...)}
}

// Usagef returns the error of a wrong command line.
func Usagef(format string, args ...any) error { return Errorf(Usage, format, args...) }
