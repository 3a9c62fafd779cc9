package testserver

import (
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
)

// Host stands in for a test in a program that needs servers. Its zero value is ready for use.
type Host struct {
	mu       sync.Mutex
	cleanUps []func()
}

// Do runs f with the test that Host stands in for. It returns what ended that test, if anything did: an error of
// Fatalf, or of Skipf where a server's program is missing. Servers that f starts run until Close.
func (h *Host) Do(f func(t testing.TB)) (err error) {
	defer func() {
		if thrown := recover(); thrown != nil {
			ended, ours := thrown.(hostEnded)
			if !ours {
				panic(thrown)
			}
			err = ended
		}
	}()
	f(&hosted{host: h})
	return nil
}

// Close stops the servers and removes their directories.
func (h *Host) Close() {
	h.mu.Lock()
	all := h.cleanUps
	h.cleanUps = nil
	h.mu.Unlock()
	for _, f := range slices.Backward(all) {
		f()
	}
}

// hosted is the test. The interface that it embeds is nil: it has the methods that this package calls.
type hosted struct {
	testing.TB
	host *Host
}

// hostEnded is what ended the test.
type hostEnded string

func (e hostEnded) Error() string { return string(e) }

func (*hosted) Helper() {}

func (t *hosted) Cleanup(f func()) {
	t.host.mu.Lock()
	defer t.host.mu.Unlock()
	t.host.cleanUps = append(t.host.cleanUps, f)
}

func (t *hosted) TempDir() string {
	dir, err := os.MkdirTemp("", "locker-")
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// Errorf prints: what cannot be cleaned up ends no program.
func (*hosted) Errorf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (*hosted) Fatalf(format string, args ...any) { panic(hostEnded(fmt.Sprintf(format, args...))) }

func (t *hosted) Skipf(format string, args ...any) { t.Fatalf(format, args...) }
