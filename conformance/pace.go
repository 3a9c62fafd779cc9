package conformance

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/conformance/internal/engine"
)

// pace has the latencies that a trial has measured. The start-up time of a program says nothing of
// its lock. So a trial in which a program started slowly while deadlines were running is discarded,
// and repeated with the programs that it has started.
type pace struct {
	answer atomic.Int64 // ns of the fastest uncontended Lock; 0: there was none
	late   atomic.Int64 // ns of the latest slow start while deadlines were running; 0: there was none
}

const (
	promptly   = settle / 2 // of a start while deadlines are running; a longer one is slow
	rehearsals = 3          // trials at most, until one is not discarded
)

// rehearsed returns the verdict of a discarded trial, or nil.
func (p *pace) rehearsed() error {
	late := time.Duration(p.late.Load())
	if late == 0 {
		return nil
	}
	return &engine.Doubt{Seen: fmt.Errorf("%w: a program took %v to start, while a Locker waited", engine.ErrInDoubt, late.Round(time.Millisecond))}
}
