//go:build unix

package main

import (
	"fmt"
	"os/exec"
	"syscall"
)

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

// leadsGroup has cmd lead a process group: what it starts ends with it, and Ctrl-C does not reach it.
func leadsGroup(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func signalGroup(leader int, sig syscall.Signal) error { return syscall.Kill(-leader, sig) }

// guardGroup starts a process that kills the group when we are no more, however we have ended: its input ends then.
func guardGroup(leader int) (*exec.Cmd, error) {
	guard := exec.Command("/bin/sh", "-c", fmt.Sprintf("cat >/dev/null; kill -9 -%d", leader))
	leadsGroup(guard)
	if _, err := guard.StdinPipe(); err != nil {
		return nil, err
	}
	err := guard.Start()
	return guard, err
}
