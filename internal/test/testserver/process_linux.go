package testserver

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

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
