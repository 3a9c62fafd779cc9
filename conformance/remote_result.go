package conformance

import (
	"errors"
	"regexp"
	"strings"

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

// power returns the methods T of a Locker that not every one has. A program's has those that it claims.
func power[T any](l locker.Locker, capability string) (methods T, ok bool) {
	if r, is := l.(*remote); is && !r.p.Can(capability) {
		return methods, false
	}
	methods, ok = l.(T)
	return methods, ok
}

var (
	wordsOfGo = regexp.MustCompile(`"(?:\\.|[^"\\])*"|\b(?:ErrHeld|ErrLost|ErrNotHeld|goroutines?)\b` +
		`|\b(?:says|said|returned|want|never) nil\b|: nil; want|\(nil\)`)
	protocolsWords = strings.NewReplacer("ErrHeld", stdio.Held, "ErrLost", stdio.Lost, "ErrNotHeld", stdio.NotHeld, "nil", stdio.OK, "goroutine", "caller")
)

// inItsWords is what is said of a lock, in the words of the protocol instead of Go's. What is quoted
// are the program's own words.
func inItsWords(text string) string {
	return wordsOfGo.ReplaceAllStringFunc(text, func(words string) string {
		if words[0] == '"' {
			return words
		}
		return protocolsWords.Replace(words)
	})
}
