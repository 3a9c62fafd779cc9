package remote

import (
	"errors"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/stdio"
)

// Result is an answer as an error of the contract.
func Result(answer stdio.Answer) error {
	var is error
	switch answer.Result {
	case stdio.OK:
		return nil
	case stdio.Held:
		is = locker.ErrHeld
	case stdio.Lost:
		is = locker.ErrLost
	case stdio.NotHeld:
		is = locker.ErrNotHeld
	case stdio.Cancelled:
		is = ErrGaveUp
	default:
		return errors.New(answer.Error)
	}
	if answer.Error == "" {
		return is
	}
	return &answeredError{is, answer.Error}
}

// answeredError is a result with words of its own.
type answeredError struct {
	is    error
	words string
}

func (e *answeredError) Error() string { return e.words }

func (e *answeredError) Unwrap() error { return e.is }

// ErrMissing is what is said of a capability that the program does not claim.
var ErrMissing = errors.New("the program does not claim it")

// ErrGaveUp is the program's, whose time was over or who was cancelled.
var ErrGaveUp = errors.New("the program gave up")

// ErrNoShares is said by a process whose Lockers have none.
var ErrNoShares = errors.New("what the process serves is no RWLocker")
