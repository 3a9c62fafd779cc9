// Package redisserver runs Redis servers of a benchmark's own, and looks at what they do.
package redisserver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker/internal/test/testserver"
)

// Server is a redis-server of our own, and a connection to look at it with.
type Server struct {
	Addr    string
	Version string
	Client  *goredis.Client

	mu     sync.Mutex // guards what follows
	host   testserver.Host
	server *testserver.RedisServer // nil once it has been stopped for good
}

// Servers are some that do not know of each other.
type Servers []*Server

// Start starts n, each on a free loopback port. The caller stops them; they also stop when ctx
// ends, so that clients that do not heed it find out.
func Start(ctx context.Context, n int) (Servers, error) {
	var all Servers
	for range n {
		s, err := start(ctx)
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

func start(ctx context.Context) (*Server, error) {
	s := &Server{}
	if err := s.host.Do(func(t testing.TB) { s.server = testserver.Redis(t) }); err != nil {
		s.host.Close()
		return nil, err
	}
	s.Addr = s.server.Addr()
	s.Client = goredis.NewClient(&goredis.Options{Addr: s.Addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	info, err := s.info(ctx, "server")
	if err != nil {
		s.Stop()
		return nil, err
	}
	s.Version = info["redis_version"]
	return s, nil
}

// Freeze stops the process. The kernel still accepts connections and requests for it.
func (s *Server) Freeze(context.Context) error { return s.do((*testserver.RedisServer).Stop) }

// Thaw has it go on, and returns once it answers.
func (s *Server) Thaw(ctx context.Context) error {
	if err := s.do((*testserver.RedisServer).Continue); err != nil {
		return err
	}
	return s.awaitAnswer(ctx)
}

// Kill ends it at once, whatever state it is in, until Restart.
func (s *Server) Kill() { _ = s.do((*testserver.RedisServer).Kill) }

// Restart starts one that has been killed, at the same address, with nothing in it.
func (s *Server) Restart(ctx context.Context) error {
	if err := s.do((*testserver.RedisServer).Restart); err != nil {
		return err
	}
	return s.awaitAnswer(ctx)
}

// do does something to the server, unless it has been stopped for good.
func (s *Server) do(what func(*testserver.RedisServer)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return errors.New("redis-server has been stopped")
	}
	return s.host.Do(func(testing.TB) { what(s.server) })
}

// awaitAnswer waits until the Client, whose connections may be broken, is answered.
func (s *Server) awaitAnswer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for {
		err := s.Client.Ping(ctx).Err()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s does not answer: %w", s.Addr, err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Stop ends it for good.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server != nil {
		s.server = nil
		s.host.Close()
		_ = s.Client.Close()
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
