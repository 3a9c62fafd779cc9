package conformance

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
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
	return string(bytes.TrimSpace(t.text))
}

// trace writes down what was said, in order of time. Nil writes nothing.
type trace struct {
	mu    sync.Mutex
	to    io.Writer
	began time.Time
}

func newTrace(to io.Writer) *trace {
	if to == nil {
		return nil
	}
	return &trace{to: to, began: time.Now()}
}

func (t *trace) note(p *program, what string, line []byte) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.to, "%9.3f s  process %d %-8s %s\n", time.Since(t.began).Seconds(), p.cmd.Process.Pid, what, line)
}
