package testserver

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

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
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
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
