package conformance

import (
	"errors"

	"github.com/go-locker/locker"
)

// resultOf is an answer as an error of the contract.
func resultOf(answer answerLine) error {
	var is error
	switch answer.Result {
	case resultOK:
		return nil
	case resultHeld:
		is = locker.ErrHeld
	case resultLost:
		is = locker.ErrLost
	case resultNotHeld:
		is = locker.ErrNotHeld
	case resultCancelled:
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

// power returns the methods T of a Locker that not every one has. A program's has those that it claims.
func power[T any](l locker.Locker, capability string) (methods T, ok bool) {
	if r, is := l.(*remote); is && !r.p.can(capability) {
		return methods, false
	}
	methods, ok = l.(T)
	return methods, ok
}
