package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/go-locker/locker/conformance"
	programs "github.com/go-locker/locker/conformance/program"
	"github.com/go-locker/locker/internal/stdio"
)

// ownServer is a server that the check has started, and may stop and kill.
type ownServer struct {
	command string
	address string

	mu    sync.Mutex
	cmd   *exec.Cmd
	guard *exec.Cmd // kills the server if we are killed
	ended chan struct{}
	says  stdio.Tail // the end of it
}

const serverWait = 30 * time.Second // for a server to answer after its start

func startServer(ctx context.Context, command, address string) (*ownServer, error) {
	for one := range strings.SplitSeq(address, ",") {
		if accepts(one) {
			return nil, usagef("--server: something answers at %s already", one)
		}
	}
	s := &ownServer{command: command, address: address}
	if err := s.start(ctx); err != nil {
		s.kill()
		return nil, err
	}
	return s, nil
}

// start returns when the server takes connections.
func (s *ownServer) start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	cmd := shell(s.command)
	cmd.Env = append(os.Environ(), programs.AddressEnv+"="+s.address)
	cmd.Stdout, cmd.Stderr = &s.says, &s.says
	cmd.WaitDelay = time.Second // what it has started may keep them open
	leadsGroup(cmd)
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

func (s *ownServer) await(ctx context.Context) error {
	end := time.Now().Add(serverWait)
	for one := range strings.SplitSeq(s.address, ",") {
		for !accepts(one) {
			select {
			case <-s.ended:
				if accepts(one) {
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

func accepts(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}

func (s *ownServer) signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return signalGroup(s.cmd.Process.Pid, sig)
}

// kill returns when the server has ended.
func (s *ownServer) kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return
	}
	_ = signalGroup(s.cmd.Process.Pid, syscall.SIGKILL)
	<-s.ended
	if s.guard != nil { // no sooner: it is to outlive us
		_ = signalGroup(s.guard.Process.Pid, syscall.SIGKILL)
		_ = s.guard.Wait()
	}
	s.cmd, s.guard = nil, nil
}

// faults are what may be done to the server. answers returns nil when a program can lock again.
func (s *ownServer) faults(f *conformance.Faults, forgets bool, answers func(context.Context) error) {
	f.StopServer = func(t conformance.TB) func() {
		if err := s.signal(sigStop); err != nil {
			t.Fatalf("cannot stop the server: %v", err)
		}
		return func() { _ = s.signal(sigCont) }
	}
	kill := func(t conformance.TB) func() {
		s.kill()
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
