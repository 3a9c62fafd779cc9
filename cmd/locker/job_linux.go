package main

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes has the command die with us, whatever ends us: a command of ours that nobody watches would run on when the lock
// has expired. What the command itself has started is out of reach then, and all of it while we are stopped (SIGSTOP).
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// stopped reports whether a child has been stopped since the last call.
func stopped(pid int) bool {
	var event unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &event, unix.WSTOPPED|unix.WNOHANG, nil)
	return err == nil && event.Code == cldStopped
}

// cldStopped is CLD_STOPPED of siginfo_t.
const cldStopped = 5
