//go:build unix

package job

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

// Forwarded are the signals that people and service managers send. Each would end us.
var Forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// Forward has those signals sent to c that a Job is to get, except those that our parent has set to be ignored, as nohup does.
func Forward(c chan<- os.Signal) {
	for _, s := range Forwarded {
		if !signal.Ignored(s) {
			signal.Notify(c, s)
		}
	}
}

// group is a process group that a command leads.
type group struct {
	cmd      *exec.Cmd
	others   *descendants   // of the command, also outside the group
	terminal int            // that it got at the start, or -1
	lent     bool           // whether it has the terminal now, as far as we know
	stops    chan os.Signal // SIGTSTP to us
	changes  chan os.Signal // SIGCHLD: the command may have been stopped
	mu       sync.Mutex     // held while the group is stopped together with us
	refused  sync.Once
	once     sync.Once   // of reap
	reaped   atomic.Bool // or about to be
	result   error       // of the command
}

// Start starts cmd as a Job. It makes the command the leader of a process group. If we have the terminal, the group gets it: it can read, and
// Ctrl-C goes to it, as it would without us. If our output goes to another program that shares the terminal with us, such as a
// pager, we keep it: Ctrl-Z must stop us, so that we can stop the command.
func Start(cmd *exec.Cmd) (Job, error) {
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

// ours reports whether fd is a terminal with us in the foreground.
func ours(fd int) bool {
	foreground, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return err == nil && foreground == unix.Getpgrp()
}

func piped(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeNamedPipe != 0
}

// takeTerminal takes the terminal back from the group; after bg the shell has it. We are in the background then, and SIGTTOU
// would stop us.
func (g *group) takeTerminal() {
	if !g.lent {
		return
	}
	g.lent = false
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(g.terminal, unix.TIOCSPGRP, unix.Getpgrp())
	signal.Reset(syscall.SIGTTOU)
}

// lendTerminal gives the terminal to the group again, but not after bg.
func (g *group) lendTerminal() {
	if g.terminal >= 0 && ours(g.terminal) {
		g.lent = unix.IoctlSetPointerInt(g.terminal, unix.TIOCSPGRP, g.cmd.Process.Pid) == nil
	}
}

// send sends n to the group, as long as no other group can have its number.
func (g *group) send(n syscall.Signal) error {
	if numberIsKept && g.reaped.Load() {
		return syscall.ESRCH
	}
	return g.checked(syscall.Kill(-g.cmd.Process.Pid, n))
}

// sendAll sends n to the group and to all descendants that have left it. It finds those first, because their parents may be in
// the group, and end.
func (g *group) sendAll(n syscall.Signal) {
	others := g.others.list()
	_ = g.send(n)
	_ = g.checked(g.others.signal(others, n))
}

// checked prints once that the command is another user's, and cannot be ended.
func (g *group) checked(err error) error {
	if errors.Is(err, fs.ErrPermission) {
		g.refused.Do(func() {
			fmt.Fprintf(os.Stderr, "locker: cannot signal the command (%v): it runs as another user; run locker as that user\n", err)
		})
	}
	return err
}

// Signal implements [Job]. Signals that ask for an end also wake stopped processes, which could not handle them.
func (g *group) Signal(s os.Signal) {
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

// Terminate implements [Job].
func (g *group) Terminate() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sendAll(syscall.SIGTERM)
	g.sendAll(syscall.SIGCONT)
}

// Kill implements [Job].
func (g *group) Kill() { g.sendAll(syscall.SIGKILL) }

// Remains implements [Job].
func (g *group) Remains() bool { return g.others.remain(g.reaped.Load()) }

// Reap implements [Job].
func (g *group) Reap() error {
	g.once.Do(func() {
		g.reaped.Store(true)
		g.result = g.cmd.Wait()
	})
	return g.result
}

// Wait implements [Job]. If the command is stopped, as by Ctrl-Z, it stops us too: otherwise the shell would wait
// for us, and nobody would have the terminal. If the command does not have the terminal, it is stopped when we get SIGTSTP.
func (g *group) Wait(mayGoOn func() bool) {
	defer signal.Stop(g.stops)
	defer signal.Stop(g.changes)
	ended := make(chan struct{})
	go func() {
		g.awaitEnd()
		close(ended)
	}()
	var orphans <-chan time.Time // when to reap orphans: not after each SIGCHLD
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
			if !errors.Is(g.send(0), fs.ErrPermission) { // a command that cannot be stopped needs the lock
				g.pause(mayGoOn)
			}
		}
	}
}

// pause stops the whole group and those that have left it, because a member may ignore Ctrl-Z, and then us. The lock is not renewed
// meanwhile. If it is lost by the time we go on, the command is killed.
func (g *group) pause(mayGoOn func() bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sendAll(syscall.SIGSTOP)
	g.takeTerminal()
	suspend()
	_ = stopped(g.cmd.Process.Pid) // we did that: do not count it as another stop
	if !mayGoOn() {
		g.Kill()
		return
	}
	g.lendTerminal()
	g.sendAll(syscall.SIGCONT)
}

// suspend stops this process, and those in a pipe with it, as Ctrl-Z would have. It returns when the shell continues it, or at
// once if there is no shell to do so.
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

// ExitCode is what a shell would report of a command that has ended.
func ExitCode(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return signalBase + int(w.Signal())
	}
	return s.ExitCode()
}

// interrupted reports whether SIGINT ended the command.
func interrupted(s *os.ProcessState) bool {
	w, ok := s.Sys().(syscall.WaitStatus)
	return ok && w.Signaled() && w.Signal() == syscall.SIGINT
}

// DieOfInterrupt ends this process as SIGINT does, so that a shell sees that. It returns if SIGINT is ignored.
func DieOfInterrupt() {
	if signal.Ignored(syscall.SIGINT) {
		return
	}
	signal.Reset(syscall.SIGINT)
	_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
	time.Sleep(time.Second) // another thread may be the one that gets it
}
