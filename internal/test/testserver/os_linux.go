package testserver

import (
	"bytes"
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
	"testing"
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
	p.check(errors.Join(os.WriteFile(library, object, 0o600), os.WriteFile(file, make([]byte, clockSize), 0o600)))
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

// inMemory is where Linux keeps files in memory.
const inMemory, memoryPrefix = "/dev/shm", "locker-"

// MemoryDir returns a directory in memory if there is such a place, and otherwise t.TempDir. It is
// removed when the test ends, after what has registered its clean-up later. A process that is
// killed leaves its directories behind; the next process removes them.
func MemoryDir(t testing.TB) string {
	t.Helper()
	sweepMemory()
	dir, err := os.MkdirTemp(inMemory, memoryPrefix)
	if err != nil {
		return t.TempDir()
	}
	held, err := holdDir(dir)
	check(t, dir, err)
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("testserver: %v", err)
		}
		_ = held.Close()
	})
	return dir
}

// holdDir locks a directory for as long as the file is open and this process lives. It fails if
// another process has locked it.
func holdDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

var sweepMemory = sync.OnceFunc(removeDeadDirs)

// removeDeadDirs removes the directories that no living process has locked. One that was changed
// less than a minute ago may be about to be locked.
func removeDeadDirs() {
	dirs, _ := filepath.Glob(filepath.Join(inMemory, memoryPrefix+"*"))
	for _, dir := range dirs {
		if info, err := os.Stat(dir); err != nil || time.Since(info.ModTime()) < time.Minute {
			continue
		}
		if held, err := holdDir(dir); err == nil {
			_ = os.RemoveAll(dir)
			_ = held.Close()
		}
	}
}

// notAsRoot has a program that refuses to run as root take us for somebody else: in a user namespace, where root has another number
// and still may what it may; or, where that is not allowed, as the user nobody, who gets dir, but has to be able to see the program.
func notAsRoot(sys *syscall.SysProcAttr, dir string) error {
	const somebody, nobody = 1000, 65534
	namespace := func(sys *syscall.SysProcAttr) {
		sys.Cloneflags = syscall.CLONE_NEWUSER
		sys.UidMappings = []syscall.SysProcIDMap{{ContainerID: somebody, HostID: 0, Size: 1}}
		sys.GidMappings = []syscall.SysProcIDMap{{ContainerID: somebody, HostID: 0, Size: 1}}
	}
	try := exec.Command("/bin/true")
	try.SysProcAttr = &syscall.SysProcAttr{}
	namespace(try.SysProcAttr)
	if try.Run() == nil {
		namespace(sys)
		return nil
	}
	sys.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	return os.Chown(dir, nobody, nobody)
}

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

// diesWithUs has the kernel kill the server when the thread that started it ends. Of a test
// process that is killed itself nothing else could clean up.
func diesWithUs() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// isStopped reports whether every thread of pid has stopped. SIGSTOP returns to its sender before
// that, and a thread that still runs could answer one more request.
func isStopped(pid int) bool {
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(stats) == 0 {
		return false
	}
	for _, name := range stats {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // the thread ended meanwhile
		}
		// "pid (command) state …"; the command may contain anything, parentheses too.
		_, state, _ := bytes.Cut(stat[bytes.LastIndexByte(stat, ')')+1:], []byte(" "))
		if !bytes.HasPrefix(state, []byte("T")) {
			return false
		}
	}
	return true
}
