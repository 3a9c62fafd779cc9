//go:build unix

package conformance

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

const stopsProcesses = true

// ofItsOwn gives cmd a process group: stopped, it does not outlive this process then, for the kernel hangs up on it.
func ofItsOwn(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

// stopProcess stops the group of p, and returns when p has stopped.
func stopProcess(p *os.Process) error {
	if err := syscall.Kill(-p.Pid, syscall.SIGSTOP); err != nil {
		return err
	}
	var status syscall.WaitStatus
	for {
		_, err := syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err == nil && !status.Stopped() {
			err = fmt.Errorf("it has ended: %v", status)
		}
		return err
	}
}

func continueProcess(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGCONT) }

// killGroup kills p and what it has started in its group.
func killGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }
