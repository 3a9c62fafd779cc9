//go:build unix

package server

import (
	"fmt"
	"os/exec"
	"syscall"

	"github.com/go-locker/locker/internal/stdio"
)

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

func signalGroup(leader int, sig syscall.Signal) error { return syscall.Kill(-leader, sig) }

// guardGroup starts a process that kills the group when we are no more, however we have ended: its input ends then.
func guardGroup(leader int) (*exec.Cmd, error) {
	guard := exec.Command("/bin/sh", "-c", fmt.Sprintf("cat >/dev/null; kill -9 -%d", leader))
	stdio.OwnGroup(guard)
	if _, err := guard.StdinPipe(); err != nil {
		return nil, err
	}
	err := guard.Start()
	return guard, err
}
