package conformance

import (
	"regexp"
	"strings"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/internal/stdio"
)

// promisesInWords are those of a hello: a promise with a condition is that condition.
func promisesInWords(promises locker.Guarantees) map[string]string {
	words := map[string]string{}
	for g, p := range promises {
		words[string(g)] = p.Level.String()
		if p.Level == locker.LevelConditional {
			words[string(g)] = p.Condition
		}
	}
	return words
}

// promisesOf is the reverse.
func promisesOf(words map[string]string) locker.Guarantees {
	promises := locker.Guarantees{}
	for g, says := range words {
		promise := locker.Promise{Level: locker.LevelConditional, Condition: says}
		for _, level := range []locker.Level{locker.LevelYes, locker.LevelNo} {
			if says == level.String() {
				promise = locker.Promise{Level: level}
			}
		}
		promises[locker.Guarantee(g)] = promise
	}
	return promises
}

// inItsWords is what is said of a lock, in the words of the protocol instead of Go's. What is
// quoted are the program's own words.
func inItsWords(text string) string {
	return wordsOfGo.ReplaceAllStringFunc(text, func(words string) string {
		if words[0] == '"' {
			return words
		}
		return protocolsWords.Replace(words)
	})
}

var (
	wordsOfGo = regexp.MustCompile(`"(?:\\.|[^"\\])*"|\b(?:ErrHeld|ErrLost|ErrNotHeld|goroutines?)\b` +
		`|\b(?:says|said|returned|want|never) nil\b|: nil; want|\(nil\)`)
	protocolsWords = strings.NewReplacer("ErrHeld", stdio.Held, "ErrLost", stdio.Lost, "ErrNotHeld", stdio.NotHeld, "nil", stdio.OK, "goroutine", "caller")
)
