//go:build unix

package conformance

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// ofItsOwn gives cmd a process group: stopped, it does not outlive this process then, for the kernel hangs up on it.
func ofItsOwn(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

func stopProcess(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
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

func continueProcess(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
