//go:build unix

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// forwarded are the signals that people and service managers send. Each would end us, if we did not pass it on.
var forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// notify relays signals to c, except those that our parent set to be ignored, as nohup does.
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
	others   *descendants   // the command's that are not in the group
	terminal int            // that it was given at first, or -1
	lent     bool           // it has the terminal now, as far as we know
	stops    chan os.Signal // SIGTSTP to us
	changes  chan os.Signal // SIGCHLD: the command may have been stopped
	mu       sync.Mutex     // held while the group is stopped together with us
	refused  sync.Once
	once     sync.Once   // of reap
	reaped   atomic.Bool // or is about to be
	result   error       // of the command
}

// start makes the command the leader of a process group. If we have the terminal, the group gets it: it can read, and
// Ctrl-C goes to it, as it would without us. Not so if our output goes to another program, a pager say, that has the
// terminal with us: Ctrl-Z then stops us, and must not before we can stop the command.
func start(cmd *exec.Cmd) (job, error) {
	g := &group{cmd: cmd, terminal: -1, stops: make(chan os.Signal, 1), changes: make(chan os.Signal, 1)}
	cmd.SysProcAttr = attributes()
	cmd.SysProcAttr.Setpgid = true
	if tty := int(os.Stdin.Fd()); ours(tty) && !piped(os.Stdout) {
		g.terminal, g.lent = tty, true
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, tty
	}
	signal.Notify(g.changes, syscall.SIGCHLD)
	if !signal.Ignored(syscall.SIGTSTP) {
		signal.Notify(g.stops, syscall.SIGTSTP)
	}
	g.others = adopt()
	if err := cmd.Start(); err != nil {
		g.takeTerminal()
		return nil, err
	}
	g.others.leader = cmd.Process.Pid
	return g, nil
}

// ours reports whether fd is a terminal whose foreground we are.
func ours(fd int) bool {
	foreground, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}

func piped(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeNamedPipe != 0
}

// takeTerminal takes the terminal back, if the group has it: after bg it is the shell's. We are in the background then, and
// would be stopped for asking.
func (g *group) takeTerminal() {
	if !g.lent {
		return
	}
	g.lent = false
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(g.terminal, unix.TIOCSPGRP, unix.Getpgrp())
	signal.Reset(syscall.SIGTTOU)
}

// lendTerminal gives it to the group again, but not after bg.
func (g *group) lendTerminal() {
	if g.terminal >= 0 && ours(g.terminal) {
		g.lent = unix.IoctlSetPointerInt(g.terminal, unix.TIOCSPGRP, g.cmd.Process.Pid) == nil
	}
}

// send sends n to the group, as long as its number is its own.
func (g *group) send(n syscall.Signal) error {
	if numberIsKept && g.reaped.Load() {
		return syscall.ESRCH
	}
	return g.checked(syscall.Kill(-g.cmd.Process.Pid, n))
}

// sendAll sends n to the group and to all descendants that have left it. It looks for those first: their parents may be in the
// group, and end.
func (g *group) sendAll(n syscall.Signal) {
	others := g.others.list()
	_ = g.send(n)
	_ = g.checked(g.others.signal(others, n))
}

// checked says once if the command, or what it has become, is another user's: there is no way to end it then.
func (g *group) checked(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		g.refused.Do(func() {
			fmt.Fprintf(os.Stderr, "locker: the command does not take our signals (%v): it runs as another user; run locker as that user\n", err)
		})
	}
	return err
}

// signal sends the job the signal that we received. A request to end also continues stopped processes, which could not act on it.
func (g *group) signal(s os.Signal) {
	n, ok := s.(syscall.Signal)
	if !ok {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = g.send(n)
	switch n {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		_ = g.send(syscall.SIGCONT)
	}
}

func (g *group) terminate() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sendAll(syscall.SIGTERM)
	g.sendAll(syscall.SIGCONT)
}

func (g *group) kill() { g.sendAll(syscall.SIGKILL) }

func (g *group) remains() bool { return g.others.remain(g.reaped.Load()) }

func (g *group) reap() error {
	g.once.Do(func() {
		g.reaped.Store(true)
		g.result = g.cmd.Wait()
	})
	return g.result
}

// wait follows the command until it has ended, and stops us when it is stopped, as by Ctrl-Z. Else the shell would wait for us,
// and the terminal be nobody's. Without the terminal the command is stopped when we are to be.
func (g *group) wait(mayGoOn func() bool) {
	defer signal.Stop(g.stops)
	defer signal.Stop(g.changes)
	ended := make(chan struct{})
	go func() {
		g.awaitEnd()
		close(ended)
	}()
	var orphans <-chan time.Time // when to look for those that have ended, not for each one of many
	for {
		select {
		case <-ended:
			g.takeTerminal()
			return
		case <-orphans:
			orphans = nil
			g.others.list()
		case <-g.changes:
			if orphans == nil {
				orphans = time.After(time.Second)
			}
			if g.terminal >= 0 && stopped(g.cmd.Process.Pid) {
				g.pause(mayGoOn)
			}
		case <-g.stops:
			if !errors.Is(g.send(0), fs.ErrPermission) { // who cannot be stopped needs the lock
				g.pause(mayGoOn)
			}
		}
	}
}

// pause stops the whole group and what has left it, for a member may ignore Ctrl-Z, and then us. A lock is not renewed meanwhile: who comes back
// too late has lost it, and goes on only to be killed.
func (g *group) pause(mayGoOn func() bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sendAll(syscall.SIGSTOP)
	g.takeTerminal()
	suspend()
	_ = stopped(g.cmd.Process.Pid) // by us: not to be seen as another stop
	if !mayGoOn() {
		g.kill()
		return
	}
	g.lendTerminal()
	g.sendAll(syscall.SIGCONT)
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

func statusCode(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return exitSignalBase + int(w.Signal())
	}
	return s.ExitCode()
}

func interrupted(s *os.ProcessState) bool {
	w, ok := s.Sys().(syscall.WaitStatus)
	return ok && w.Signaled() && w.Signal() == syscall.SIGINT
}

// dieOfInterrupt returns if SIGINT is ignored.
func dieOfInterrupt() {
	if signal.Ignored(syscall.SIGINT) {
		return
	}
	signal.Reset(syscall.SIGINT)
	_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
	time.Sleep(time.Second) // another thread may be the one that gets it
}
