package conformance

import (
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker/conformance/internal/engine"
)

// pace is what a trial learns of the time that its Lockers and their programs take. How long a
// program takes to start says nothing of its lock, and is no part of a story: a trial that waits
// for a start while its clocks run is run again, by when the programs of the first are ready.
type pace struct {
	answer atomic.Int64 // nanoseconds of the quickest Lock of a free lock; 0: there was none
	late   atomic.Int64 // nanoseconds of the last start that took long, while clocks were running
}

const (
	promptly   = settle / 2 // what a start may take while clocks run
	rehearsals = 3          // trials that say nothing for want of programs that are ready
)

// rehearsed is the verdict of a trial that has waited for a program while its clocks were running,
// or nil.
func (p *pace) rehearsed() error {
	late := time.Duration(p.late.Load())
	if late == 0 {
		return nil
	}
	return &engine.Doubt{Seen: fmt.Errorf("%w: a program took %v to start, while a Locker waited", engine.ErrInDoubt, late.Round(time.Millisecond))}
}
