//go:build unix

package stdio

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// StopsProcesses reports whether this system can stop one.
const StopsProcesses = true

// OwnGroup gives cmd a process group: stopped, it does not outlive this process then, for the
// kernel hangs up on it.
func OwnGroup(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
}

// StopGroup stops the group of p, and returns when p has stopped.
func StopGroup(p *os.Process) error {
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

// ContinueGroup undoes StopGroup.
func ContinueGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGCONT) }

// KillGroup kills p and what it has started in its group.
func KillGroup(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGKILL) }
