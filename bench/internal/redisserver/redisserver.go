// Package redisserver runs Redis servers of a benchmark's own, and looks at what they do.
package redisserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
)

// Server is a redis-server of our own, and a connection to look at it with.
type Server struct {
	Addr    string
	Version string
	Client  *goredis.Client

	path, dir string

	mu      sync.Mutex // guards what follows
	cmd     *exec.Cmd
	stopped bool
}

// Servers are some that do not know of each other.
type Servers []*Server

// Find looks for a program on the PATH, then in .bin of this and every directory above, where make setup puts what
// it builds.
func Find(program string) (string, error) {
	path, err := exec.LookPath(program)
	if err == nil {
		return path, nil
	}
	if dir, wdErr := os.Getwd(); wdErr == nil {
		for ; ; dir = filepath.Dir(dir) {
			if path, err := exec.LookPath(filepath.Join(dir, ".bin", program)); err == nil {
				return path, nil
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return "", fmt.Errorf("%w; run make setup, or install it", err)
}

// Start starts n, each on a free loopback port. The caller stops them; they also stop when ctx
// ends, so that clients that do not heed it find out.
func Start(ctx context.Context, n int) (Servers, error) {
	path, err := Find("redis-server")
	if err != nil {
		return nil, err
	}
	var all Servers
	for range n {
		s, err := start(ctx, path)
		if err != nil {
			all.Stop()
			return nil, err
		}
		context.AfterFunc(ctx, s.Stop)
		all = append(all, s)
	}
	return all, nil
}

// Stop ends them for good.
func (all Servers) Stop() {
	for _, s := range all {
		s.Stop()
	}
}

// Addrs are their addresses.
func (all Servers) Addrs() []string {
	addrs := make([]string, len(all))
	for i, s := range all {
		addrs[i] = s.Addr
	}
	return addrs
}

// start tries more than one port: between the choice of one and its use somebody else may take it.
func start(ctx context.Context, path string) (*Server, error) {
	var err error
	for range 5 {
		var s *Server
		if s, err = startOnce(ctx, path); err == nil || ctx.Err() != nil {
			return s, err
		}
	}
	return nil, err
}

func startOnce(ctx context.Context, path string) (*Server, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bench-")
	if err != nil {
		return nil, err
	}
	s := &Server{Addr: addr, path: path, dir: dir, Client: goredis.NewClient(&goredis.Options{
		Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true,
	})}
	if err := s.Restart(ctx); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}

// Restart starts one that has been killed, at the same address, with nothing in it.
func (s *Server) Restart(ctx context.Context) error {
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		return err
	}
	cmd := exec.Command(s.path, "--port", port, "--bind", host, "--dir", s.dir, "--save", "", "--appendonly", "no")
	if err := s.run(cmd); err != nil {
		return err
	}
	return s.awaitReady(ctx, cmd.Process.Pid)
}

func (s *Server) run(cmd *exec.Cmd) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errors.New("redis-server has been stopped")
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.cmd = cmd
	return nil
}

func (s *Server) awaitReady(ctx context.Context, pid int) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		info, err := s.info(ctx, "server")
		switch {
		case err == nil && info["process_id"] != strconv.Itoa(pid):
			return errors.New("another server has the port")
		case err == nil:
			s.Version = info["redis_version"]
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("redis-server does not answer on %s: %w", s.Addr, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Kill ends it at once, whatever state it is in, until Restart.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// Stop ends it for good.
func (s *Server) Stop() {
	s.Kill()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.stopped = true
		_ = s.Client.Close()
		_ = os.RemoveAll(s.dir)
	}
}

// info returns the fields of one section of INFO.
func (s *Server) info(ctx context.Context, section string) (map[string]string, error) {
	text, err := s.Client.Info(ctx, section).Result()
	if err != nil {
		return nil, err
	}
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[key] = value
		}
	}
	return fields, nil
}
