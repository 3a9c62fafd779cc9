package servers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/go-locker/locker/internal/test/testserver"
)

// RedisServer is one of our own, and a connection to look at it with.
type RedisServer struct {
	Addr   string
	Client *goredis.Client

	all    *Servers
	server *testserver.RedisServer
}

// Freeze stops the process. The kernel still accepts connections and requests for it.
func (s *RedisServer) Freeze(context.Context) error { return s.do((*testserver.RedisServer).Stop) }

// Thaw has it go on, and returns once it answers.
func (s *RedisServer) Thaw(ctx context.Context) error {
	if err := s.do((*testserver.RedisServer).Continue); err != nil {
		return err
	}
	return s.awaitAnswer(ctx)
}

// Kill ends it at once, whatever state it is in, until Restart.
func (s *RedisServer) Kill() { _ = s.do((*testserver.RedisServer).Kill) }

// Restart starts one that has been killed, at the same address, with nothing in it.
func (s *RedisServer) Restart(ctx context.Context) error {
	if err := s.do((*testserver.RedisServer).Restart); err != nil {
		return err
	}
	return s.awaitAnswer(ctx)
}

// do does something to the server, unless it has been stopped for good.
func (s *RedisServer) do(what func(*testserver.RedisServer)) error {
	return s.all.do(func(testing.TB) { what(s.server) })
}

// awaitAnswer waits until the Client, whose connections may be broken, is answered.
func (s *RedisServer) awaitAnswer(ctx context.Context) error {
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

// info returns the fields of one section of INFO.
func (s *RedisServer) info(ctx context.Context, section string) (map[string]string, error) {
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
