//go:build unix

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// forwarded are the signals that people and service managers send. Each would end us, if we did not pass it on.
var forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// notify has signals sent to c, but for those that whoever started us wants to be ignored, as nohup does.
func notify(c chan<- os.Signal) {
	for _, s := range forwarded {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
}

// group is a process group that a command leads.
type group struct {
	cmd      *exec.Cmd
	terminal int // that it was given, or -1
}

// start makes the command the leader of a process group. If we have the terminal, the group gets it: it can read, and
// Ctrl-C goes to it, as it would without us. Not so if our output goes to another program, a pager say, that has the
// terminal with us.
func start(cmd *exec.Cmd) (job, error) {
	g := &group{cmd, -1}
	cmd.SysProcAttr = attributes()
	cmd.SysProcAttr.Setpgid = true
	if tty := int(os.Stdin.Fd()); ours(tty) && !piped(os.Stdout) {
		g.terminal = tty
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, tty
	}
	if err := cmd.Start(); err != nil {
		g.takeTerminal()
		return nil, err
	}
	return g, nil
}

// ours says whether fd is a terminal whose foreground we are.
func ours(fd int) bool {
	foreground, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}

func piped(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeNamedPipe != 0
}

// takeTerminal takes the terminal back. We are in the background then, and would be stopped for asking.
func (g *group) takeTerminal() {
	if g.terminal < 0 {
		return
	}
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(g.terminal, unix.TIOCSPGRP, unix.Getpgrp())
	signal.Reset(syscall.SIGTTOU)
}

func (g *group) signal(s os.Signal) {
	if n, ok := s.(syscall.Signal); ok {
		_ = syscall.Kill(-g.cmd.Process.Pid, n)
	}
}

// terminate also wakes those that are stopped: they could not heed it.
func (g *group) terminate() {
	g.signal(syscall.SIGTERM)
	g.signal(syscall.SIGCONT)
}

func (g *group) kill() { g.signal(syscall.SIGKILL) }

func (g *group) wait(mayGoOn func() bool) error {
	if g.terminal >= 0 {
		g.suspensions(mayGoOn)
	}
	err := g.cmd.Wait()
	g.takeTerminal()
	return err
}

func statusCode(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return exitSignalBase + int(w.Signal())
	}
	return s.ExitCode()
}
