package testserver

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// ShiftsClocks reports whether servers can have a clock that ShiftClock shifts, on this system.
const ShiftsClocks = true

//go:embed testdata/clock.c
var clockSource []byte

const clockSize = int(unsafe.Sizeof(int64(0)))

// useClock has the server preload what shifts its clock.
func (p *process) useClock() {
	p.t.Helper()
	object, err := compiledClock()
	if err != nil {
		unavailable(p.t, err, "install a C compiler and the C library's headers (Debian: gcc and libc6-dev), or set CC")
	}
	library, file := filepath.Join(p.dir, "clock.so"), filepath.Join(p.dir, "clock")
	if err := errors.Join(os.WriteFile(library, object, 0o600), os.WriteFile(file, make([]byte, clockSize), 0o600)); err != nil {
		p.t.Fatalf("testserver: %v", err)
	}
	p.clockFile = file
	p.env = append(p.env, "LD_PRELOAD="+library, "TESTSERVER_CLOCK="+file)
}

// compiledClock compiles once for all tests of the process, and leaves no file behind.
var compiledClock = sync.OnceValues(func() ([]byte, error) { return compileClock(cmp.Or(os.Getenv("CC"), "cc")) })

// compileClock has compiler, which may come with arguments, make a shared object.
func compileClock(compiler string) (object []byte, err error) {
	dir, err := os.MkdirTemp("", "testserver")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	from, to := filepath.Join(dir, "clock.c"), filepath.Join(dir, "clock.so")
	if err := os.WriteFile(from, clockSource, 0o600); err != nil {
		return nil, err
	}
	words := append(strings.Fields(compiler), "-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o", to, from)
	if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compiling a clock for servers by %s: %w\n%s", compiler, err, out)
	}
	return os.ReadFile(to)
}

// addToClock writes through a mapping, as the server reads: it sees the shift before or the one after.
func addToClock(file string, d time.Duration) (err error) {
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	shift, err := syscall.Mmap(int(f.Fd()), 0, clockSize, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return err
	}
	atomic.AddInt64((*int64)(unsafe.Pointer(&shift[0])), int64(d))
	return syscall.Munmap(shift)
}
