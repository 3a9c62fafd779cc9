package driver

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// The errors that callers tell apart. A Driver returns ErrHeld, ErrLost and ErrUnsupported; the core returns the others. Package locker has the
// same values.
var (
	// ErrHeld says that another owner holds the lock.
	ErrHeld = errors.New("the lock is held by another owner")
	// ErrNotHeld says that Unlock or Extend was called without a hold.
	ErrNotHeld = errors.New("the lock is not held")
	// ErrLost says that the hold ended before its Unlock. It expired, was taken, or its session ended.
	ErrLost = errors.New("the lock was lost")
	// ErrClosed says that the Client is closed.
	ErrClosed = errors.New("the client is closed")
	// ErrUnsupported says that the backend cannot do, or does not promise, what was asked.
	ErrUnsupported = errors.New("not supported by the backend")
)

// Error names the operation that failed, and the lock. The core wraps what a Driver returns; a NewDriver that fails returns one with the Op new.
type Error struct {
	Op   string // lock, trylock, unlock, extend, abandon, join, inspect, warnings, new, open or close
	Name string // of the lock, without the prefix; empty where no lock is concerned
	Err  error
}

// shownName is how many characters of a name an error shows: a name may be of any length.
const shownName = 80

// Error returns the message, in one line: the operation, the first 80 characters of the name, and why it failed.
func (e *Error) Error() string {
	switch {
	case e.Name == "":
		return fmt.Sprintf("locker: %s: %v", e.Op, e.Err)
	case utf8.RuneCountInString(e.Name) > shownName:
		return fmt.Sprintf("locker: %s %.*q…: %v", e.Op, shownName, e.Name, e.Err)
	default:
		return fmt.Sprintf("locker: %s %q: %v", e.Op, e.Name, e.Err)
	}
}

// Unwrap returns why the operation failed.
func (e *Error) Unwrap() error { return e.Err }
