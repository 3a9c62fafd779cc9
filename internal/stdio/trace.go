package stdio

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode"
)

// tail is the end of what was written.
type tail struct {
	mu   sync.Mutex
	text []byte
}

// Write keeps the end.
func (t *tail) Write(text []byte) (int, error) {
	const enough = 800
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, text...)
	t.text = t.text[max(0, len(t.text)-enough):]
	return len(text), nil
}

func (t *tail) String() string {
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

// Trace writes down what was said, in order of time. Nil writes nothing.
type Trace struct {
	mu    sync.Mutex
	to    io.Writer
	began time.Time
}

// NewTrace returns one that writes to to; nil if that is nil.
func NewTrace(to io.Writer) *Trace {
	if to == nil {
		return nil
	}
	return &Trace{to: to, began: time.Now()}
}

func (t *Trace) note(p *Program, what string, line []byte) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.to, "%9.3f s  process %d %-8s %s\n", time.Since(t.began).Seconds(), p.cmd.Process.Pid, what, line)
}
