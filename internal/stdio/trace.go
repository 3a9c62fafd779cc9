package stdio

import (
	"fmt"
	"io"
	"sync"
	"time"
)

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
