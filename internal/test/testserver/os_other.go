//go:build !linux

package testserver

import (
	"errors"
	"syscall"
	"testing"
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

// MemoryDir returns t.TempDir.
func MemoryDir(t testing.TB) string {
	t.Helper()
	return t.TempDir()
}

// notAsRoot fails: on these systems we do not run as root.
func notAsRoot(*syscall.SysProcAttr, string) error {
	return errors.New("only on Linux a server that refuses to run as root is started by root")
}
