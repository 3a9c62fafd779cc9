package job

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes makes the command die with us, however we end: nobody would end it when the lock expires. This does not reach
// the processes that the command has started, and does nothing while we are stopped (SIGSTOP).
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// stopped reports whether a child has been stopped since the last call.
func stopped(pid int) bool {
	var event unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &event, unix.WSTOPPED|unix.WNOHANG, nil)
	return err == nil && event.Code == cldStopped
}

// cldStopped is CLD_STOPPED of siginfo_t.
const cldStopped = 5
