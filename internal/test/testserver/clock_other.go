//go:build !linux

package testserver

import (
	"errors"
	"time"
)

// ShiftsClocks reports whether servers can have a clock that ShiftClock shifts, on this system.
const ShiftsClocks = false

// useClock skips the test, in CI too: there is nothing that could be installed.
func (p *process) useClock() {
	p.t.Helper()
	p.t.Skipf("testserver: only on Linux can a server's clock be shifted")
}

func addToClock(string, time.Duration) error { return errors.ErrUnsupported }
