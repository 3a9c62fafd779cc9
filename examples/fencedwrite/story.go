package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/go-locker/locker"
)

// tell is the story from Bob's side, who is this process. Its ctx ends the child too, stopped or not.
func (s settings) tell(ctx context.Context, accounts *account, out io.Writer) error {
	start := time.Now()
	say := func(who, format string, args ...any) {
		fmt.Fprintf(out, "%5.2fs  %-6s %s\n", time.Since(start).Seconds(), who, fmt.Sprintf(format, args...))
	}
	if err := accounts.insert(ctx, s.Account, 100); err != nil {
		return err
	}
	c, err := s.startAlice(ctx)
	if err != nil {
		return err
	}
	defer c.end()
	line, err := c.hears(ctx)
	if err != nil {
		return err
	}
	say("alice", "%s", line)
	if err := stop(c.cmd.Process); err != nil {
		return err
	}
	say("alice", "is stopped, for longer than the lock's TTL of %v", s.TTL)
	if err := s.bob(ctx, accounts, say); err != nil {
		return err
	}
	if err := c.wake(); err != nil {
		return err
	}
	if line, err = c.hears(ctx); err != nil {
		return err
	}
	say("alice", "%s", line)
	balance, err := accounts.read(ctx, s.Account)
	if err != nil {
		return err
	}
	say("", "the balance is %d: %s", balance, verdict(balance))
	return nil
}

func verdict(balance int) string {
	switch balance {
	case 100 + deposit:
		return fmt.Sprintf("Bob's %d are LOST", salary)
	case 100 + salary:
		return fmt.Sprintf("Bob's %d are there, and Alice knows that her %d are not", salary, deposit)
	default:
		return "neither of them"
	}
}

// bob waits for the lock, and writes.
func (s settings) bob(ctx context.Context, accounts *account, say func(who, format string, args ...any)) error {
	client, err := locker.Open(ctx, s.Lock, locker.WithMetadata("bob"))
	if err != nil {
		return err
	}
	defer client.Close()
	m := client.Mutex(lockName, locker.WithTTL(s.TTL))
	return m.Do(ctx, func(ctx context.Context) error {
		token := m.FencingToken()
		balance, err := accounts.read(ctx, s.Account)
		if err != nil {
			return err
		}
		if err := s.put(ctx, accounts, balance+salary, token); err != nil {
			return err
		}
		say("bob", "gets the lock, token %d, reads %d, and writes %d + %d = %d", token, balance, balance, salary, balance+salary)
		return nil
	})
}

// child is Alice's process.
type child struct {
	cmd    *exec.Cmd
	tell   io.WriteCloser
	lines  *bufio.Reader
	errors *strings.Builder
	free   func() // what was for her
}

// startAlice starts this program again, as Alice.
func (s settings) startAlice(ctx context.Context) (c *child, err error) {
	c = &child{errors: &strings.Builder{}, free: func() {}}
	if strings.HasPrefix(s.Lock, memoryScheme) {
		if s.Lock, c.free, err = serveMemory(s.Lock); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			c.free()
		}
	}()
	encoded, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c.cmd = exec.CommandContext(ctx, program)
	c.cmd.Env = append(os.Environ(), aliceVariable+"="+string(encoded))
	c.cmd.Stderr = c.errors
	if c.tell, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	lines, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.lines = bufio.NewReader(lines)
	return c, c.cmd.Start()
}

// hears is the next line that she says.
func (c *child) hears(ctx context.Context) (string, error) {
	line, err := c.lines.ReadString('\n')
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		c.end()
		return "", fmt.Errorf("alice has ended: %s", strings.TrimSpace(c.errors.String()))
	}
	return strings.TrimSpace(line), nil
}

// wake has her go on, where she was stopped.
func (c *child) wake() error {
	if _, err := io.WriteString(c.tell, "\n"); err != nil {
		return err
	}
	return cont(c.cmd.Process)
}

// end waits until she has ended; one who is stopped, or waits to be told, ends now.
func (c *child) end() {
	_ = c.tell.Close()
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
	c.free()
}
