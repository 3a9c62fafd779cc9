package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// attributes has the command die with us, whatever ends us: a command of ours that nobody watches would run on when the lock
// has lapsed. What the command itself has started is out of reach then.
func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// suspensions follows the command until it has ended, and stops us when it is stopped, as by Ctrl-Z. Else the shell would wait
// for us, and the terminal be nobody's. A lock is not renewed meanwhile: who comes back too late has lost it, and goes
// on only to be killed.
func (g *group) suspensions(mayGoOn func() bool) {
	for {
		var event unix.Siginfo
		err := unix.Waitid(unix.P_PID, g.cmd.Process.Pid, &event, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil || event.Code != cldStopped:
			return
		}
		_ = unix.Waitid(unix.P_PID, g.cmd.Process.Pid, nil, unix.WSTOPPED|unix.WNOHANG, nil) // seen
		g.takeTerminal()
		suspend()
		if !mayGoOn() {
			g.kill()
			continue
		}
		if ours(g.terminal) { // not after bg
			_ = unix.IoctlSetPointerInt(g.terminal, unix.TIOCSPGRP, g.cmd.Process.Pid)
		}
		g.signal(syscall.SIGCONT)
	}
}

// suspend stops this process, and those of a pipe with it, as Ctrl-Z would have. It returns when the shell has it go on, or at
// once if there is no shell that could.
func suspend() {
	parent := unix.Getppid()
	session, err := unix.Getsid(0)
	theirs, err2 := unix.Getsid(parent)
	job, err3 := unix.Getpgid(parent)
	if err != nil || err2 != nil || err3 != nil || session != theirs || job == unix.Getpgrp() {
		return
	}
	resumed := make(chan os.Signal, 1)
	signal.Notify(resumed, unix.SIGCONT)
	defer signal.Stop(resumed)
	_ = unix.Kill(0, unix.SIGSTOP)
	<-resumed // another thread may be the one that stops first
}

// cldStopped is CLD_STOPPED of siginfo_t.
const cldStopped = 5
