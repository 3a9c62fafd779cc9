// Package server starts the server of --server, which the check may stop and kill.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/internal/stdio"
)

// Server is a server that the check has started, and may stop and kill.
type Server struct {
	command string
	address string

	mu    sync.Mutex
	cmd   *exec.Cmd
	guard *exec.Cmd // kills the server if we are killed
	ended chan struct{}
	says  stdio.Tail // the end of it
}

const serverWait = 30 * time.Second // for a server to answer after its start

// Start returns when a server takes connections, where nothing did before.
func Start(ctx context.Context, command, address string) (*Server, error) {
	for one := range strings.SplitSeq(address, ",") {
		if Accepts(one) {
			return nil, fmt.Errorf("--server: something answers at %s already", one)
		}
	}
	s := &Server{command: command, address: address}
	if err := s.start(ctx); err != nil {
		s.Kill()
		return nil, err
	}
	return s, nil
}

// start returns when the server takes connections.
func (s *Server) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cmd := Shell(s.command)
	cmd.Env = append(os.Environ(), stdio.AddressEnv+"="+s.address)
	cmd.Stdout, cmd.Stderr = &s.says, &s.says
	cmd.WaitDelay = time.Second // what it has started may keep them open
	stdio.OwnGroup(cmd)         // what it starts ends with it, and Ctrl-C does not reach it
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("--server: %w", err)
	}
	s.cmd, s.ended = cmd, make(chan struct{})
	ended := s.ended
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	guard, err := guardGroup(cmd.Process.Pid)
	if err != nil {
		return fmt.Errorf("--server: %w", err)
	}
	s.guard = guard
	return s.await(ctx)
}

func (s *Server) await(ctx context.Context) error {
	end := time.Now().Add(serverWait)
	for one := range strings.SplitSeq(s.address, ",") {
		for !Accepts(one) {
			select {
			case <-s.ended:
				if Accepts(one) {
					continue // said below
				}
				return fmt.Errorf("--server: it has ended before it took connections (it has to run in the foreground); it wrote:\n%v", &s.says)
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(10 * time.Millisecond):
			}
			if time.Now().After(end) {
				return fmt.Errorf("--server: nothing answers at %s after %v; it wrote:\n%v", one, serverWait, &s.says)
			}
		}
	}
	select {
	case <-s.ended:
		return errors.New("--server: its command has ended, and left a server in the background, which cannot be stopped and killed: have it run in the foreground")
	case <-time.After(100 * time.Millisecond):
		return nil
	}
}

// Accepts reports whether something takes connections there.
func Accepts(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

// signal has a function of stdio act on the server's process group.
func (s *Server) signal(group func(*os.Process) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return group(s.cmd.Process)
}

// guardGroup starts a process that kills the group when we are no more, however we have ended: its
// input ends then.
func guardGroup(leader int) (*exec.Cmd, error) {
	guard := exec.Command("/bin/sh", "-c", fmt.Sprintf("cat >/dev/null; kill -9 -%d", leader))
	stdio.OwnGroup(guard)
	if _, err := guard.StdinPipe(); err != nil {
		return nil, err
	}
	err := guard.Start()
	return guard, err
}

// Kill returns when the server has ended.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	_ = stdio.KillGroup(s.cmd.Process)
	<-s.ended
	if s.guard != nil { // no sooner: it is to outlive us
		_ = stdio.KillGroup(s.guard.Process)
		_ = s.guard.Wait()
	}
	s.cmd, s.guard = nil, nil
}

// Faults are what may be done to the server. answers returns nil when a program can lock again.
func (s *Server) Faults(f *conformance.Faults, forgets bool, answers func(context.Context) error) {
	f.StopServer = func(t conformance.TB) func() {
		if err := s.signal(stdio.StopGroup); err != nil {
			t.Fatalf("cannot stop the server: %v", err)
		}
		return func() { _ = s.signal(stdio.ContinueGroup) }
	}
	kill := func(t conformance.TB) func() {
		s.Kill()
		return func() {
			ctx, cancel := context.WithTimeout(context.Background(), serverWait)
			defer cancel()
			err := s.start(ctx)
			for err == nil {
				if err = answers(ctx); err == nil {
					return
				}
				if ctx.Err() == nil { // it accepts connections before it serves
					err = nil
					time.Sleep(50 * time.Millisecond)
				}
			}
			t.Fatalf("the server does not answer after its restart: %v", err)
		}
	}
	if forgets {
		f.WipeServer = kill
	} else {
		f.KillServer = kill
	}
}

// Shell returns a command of the shell.
func Shell(command string) *exec.Cmd {
	if runtime.GOOS == "windows" {
		return exec.Command("cmd", "/C", command)
	}
	return exec.Command("/bin/sh", "-c", command)
}
