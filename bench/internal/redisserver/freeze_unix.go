//go:build unix

package redisserver

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
)

// Freeze stops the process and returns once it does not answer any more. The kernel still accepts connections
// and requests for it.
func (s *Server) Freeze(ctx context.Context) error {
	if err := s.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	for range 100 {
		ping, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		err := s.Client.Ping(ping).Err()
		cancel()
		if err != nil {
			return ctx.Err()
		}
	}
	return fmt.Errorf("%s goes on answering after SIGSTOP", s.Addr)
}

// Thaw has it go on, and returns once it answers.
func (s *Server) Thaw(ctx context.Context) error {
	if err := s.signal(syscall.SIGCONT); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err := s.Client.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s does not answer after SIGCONT: %w", s.Addr, err)
		}
	}
}

func (s *Server) signal(sig syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd == nil {
		return errors.New("redis-server does not run")
	}
	return s.cmd.Process.Signal(sig)
}
