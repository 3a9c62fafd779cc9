package stdio

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"unicode"
)

// Tail keeps the end of what a program writes, for errors: some write much.
type Tail struct {
	mu   sync.Mutex
	text []byte
}

// Write keeps the end.
func (t *Tail) Write(text []byte) (int, error) {
	const enough = 1000
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, text...)
	t.text = t.text[max(0, len(t.text)-enough):]
	return len(text), nil
}

// String returns it without what would command a terminal.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return printable(string(bytes.TrimSpace(t.text)))
}

// capped passes on the beginning of what is written.
type capped struct {
	to   io.Writer
	used int
}

// Write drops what is too much.
func (c *capped) Write(text []byte) (int, error) {
	const most = 64 << 10
	if c.used <= most {
		_, _ = c.to.Write(text[:min(len(text), most-c.used)])
		if c.used += len(text); c.used > most {
			_, _ = io.WriteString(c.to, "\n(no more of it is shown)\n")
		}
	}
	return len(text), nil
}

// printable is text that commands no terminal.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) || r == '\n' || r == '\t' {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}
