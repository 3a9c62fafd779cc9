package driver

import (
	"errors"
	"fmt"
	"unicode/utf8"
)

// The errors that callers tell apart. A Driver returns ErrHeld, ErrLost and ErrUnsupported, and
// from ForceRelease also ErrNotHeld. The core returns the others. Package locker has the same
// values.
var (
	// ErrHeld means that another owner holds the lock.
	ErrHeld = errors.New("the lock is held by another owner")
	// ErrNotHeld means that there is no hold: the caller has none, or nobody has one (ForceRelease).
	ErrNotHeld = errors.New("the lock is not held")
	// ErrLost means that the hold ended before its Unlock. It expired, was taken, or its session
	// ended.
	ErrLost = errors.New("the lock was lost")
	// ErrClosed means that the Client is closed.
	ErrClosed = errors.New("the client is closed")
	// ErrUnsupported means that the backend cannot do, or does not promise, what was asked.
	ErrUnsupported = errors.New("not supported by the backend")
)

// HeldError is an ErrHeld that tells who held the lock when the backend answered. A Driver returns
// it if the backend's answer names the holder anyway, and makes no request for it. So a field may
// be empty, and most backends return a plain ErrHeld to some calls.
type HeldError struct {
	Holder Participant
}

// Error returns the text of ErrHeld, and the first 80 characters of the holder's metadata, quoted,
// if there is any.
func (e *HeldError) Error() string {
	if e.Holder.Metadata == "" {
		return ErrHeld.Error()
	}
	return fmt.Sprintf("%v, %s", ErrHeld, quoted(e.Holder.Metadata))
}

// Unwrap returns ErrHeld.
func (e *HeldError) Unwrap() error { return ErrHeld }

// Error names the operation that failed, and the lock. The core wraps what a Driver returns; a
// NewDriver that fails returns one with the Op new.
type Error struct {
	// Op is lock, trylock, rlock, tryrlock, unlock, extend, downgrade, abandon, join, inspect,
	// list, forcerelease, warnings, new, open or close. Do is a lock and an unlock, TryDo a trylock
	// and an unlock.
	Op   string
	Name string // of the lock, without the prefix; empty where no lock is concerned
	Err  error
}

// shown is how many characters of a name, or of metadata, an error shows: either may be of any
// length.
const shown = 80

func quoted(s string) string {
	if utf8.RuneCountInString(s) > shown {
		return fmt.Sprintf("%.*q…", shown, s)
	}
	return fmt.Sprintf("%q", s)
}

// Error returns the message, in one line: the operation, the first 80 characters of the name, and
// why it failed.
func (e *Error) Error() string {
	if e.Name == "" {
		return fmt.Sprintf("locker: %s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("locker: %s %s: %v", e.Op, quoted(e.Name), e.Err)
}

// Unwrap returns why the operation failed.
func (e *Error) Unwrap() error { return e.Err }
