package conformance

import (
	"errors"
	"regexp"

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

var wordsOfGo = regexp.MustCompile(`\b(ErrHeld|ErrLost|ErrNotHeld|nil|goroutines?)\b`)

// inItsWords is what is said of a lock, in the words of the protocol instead of Go's.
func inItsWords(text string) string {
	return wordsOfGo.ReplaceAllStringFunc(text, func(word string) string {
		switch word {
		case "ErrHeld":
			return resultHeld
		case "ErrLost":
			return resultLost
		case "ErrNotHeld":
			return resultNotHeld
		case "nil":
			return resultOK
		case "goroutine":
			return "caller"
		default:
			return "callers"
		}
	})
}
