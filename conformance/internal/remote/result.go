package conformance

import (
	"errors"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/stdio"
)

// resultOf is an answer as an error of the contract.
func resultOf(answer stdio.Answer) error {
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
		is = errGaveUp
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

// errMissing is what is said of a capability that the program does not claim.
var errMissing = errors.New("the program does not claim it")

// errGaveUp is the program's, whose time was over or who was cancelled.
var errGaveUp = errors.New("the program gave up")
