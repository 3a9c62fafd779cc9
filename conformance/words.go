package conformance

import (
	"regexp"
	"strings"

	"github.com/go-locker/locker/internal/stdio"
)

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
