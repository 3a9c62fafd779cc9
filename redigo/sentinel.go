package redigo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/gomodule/redigo/redis"
)

// sentinels know which server is the primary. See the Redis documentation, "Guidelines for Redis
// clients with support for Redis Sentinel".
type sentinels struct {
	master    string
	servers   dialFunc
	sentinels dialFunc

	mu      sync.Mutex
	addrs   []string // the one that has answered last comes first
	primary string
	asked   time.Time
}

// freshness is how long a connection is used without asking whether its server still is the
// primary.
const freshness = time.Second

// toPrimary is a connection to what was the primary.
type toPrimary struct {
	conn
	addr string
}

// conn is all that a connection of redigo's can do.
type conn interface {
	redis.ConnWithContext
	redis.ConnWithTimeout
}

// dial connects to the primary.
func (s *sentinels) dial(ctx context.Context) (redis.Conn, error) {
	addr, err := s.ask(ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.servers(ctx, addr)
	if err != nil {
		return nil, err
	}
	// A sentinel may not know yet that it is no more, and the server not yet that it is.
	role, err := redis.Values(redis.DoContext(c, ctx, "ROLE"))
	var name string
	if _, odd := redis.Scan(role, &name); err == nil && (odd != nil || name != "master") {
		err = fmt.Errorf("sentinels say that %s is the primary of %q, and it is not", addr, s.master)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return toPrimary{c.(conn), addr}, nil
}

// test refuses an idle connection to a server that the sentinels no longer call the primary. Such a
// one may be cut off from them, and go on as if nothing had happened. As long as no sentinel
// answers nothing is known to have changed.
func (s *sentinels) test(ctx context.Context, c redis.Conn, _ time.Time) error {
	s.mu.Lock()
	stale := time.Since(s.asked) > freshness
	if stale {
		s.asked = time.Now() // one asks for all
	}
	s.mu.Unlock()
	if stale {
		asking, cancel := share(ctx, 4)
		_, _ = s.ask(asking)
		cancel()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.(toPrimary).addr != s.primary {
		return errors.New("another server is the primary")
	}
	return nil
}

// ask returns the address of the primary, from the first sentinel that knows it, which is asked
// first from then on.
func (s *sentinels) ask(ctx context.Context) (string, error) {
	s.mu.Lock()
	addrs := slices.Clone(s.addrs)
	s.mu.Unlock()
	var errs []error
	for i, addr := range addrs {
		asking, cancel := share(ctx, len(addrs)-i+1) // one share is for the primary
		primary, err := s.askForPrimary(asking, addr)
		cancel()
		if err == nil {
			s.mu.Lock()
			s.primary, s.asked = primary, time.Now()
			if i := slices.Index(s.addrs, addr); i > 0 {
				s.addrs = slices.Insert(slices.Delete(s.addrs, i, i+1), 0, addr)
			}
			s.mu.Unlock()
			return primary, nil
		}
		errs = append(errs, fmt.Errorf("sentinel %s: %w", addr, err))
		if ctx.Err() != nil {
			break
		}
	}
	return "", fmt.Errorf("no sentinel knows the primary of %q: %w", s.master, errors.Join(errs...))
}

// share is an equal share of what is left of ctx.
func share(ctx context.Context, n int) (context.Context, context.CancelFunc) {
	deadline, ok := ctx.Deadline()
	if !ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, time.Until(deadline)/time.Duration(n))
}

// askOne asks the sentinel at addr about the primary.
func (s *sentinels) askOne(ctx context.Context, addr, command string) (any, error) {
	c, err := s.sentinels(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	return redis.DoContext(c, ctx, "SENTINEL", command, s.master)
}

func (s *sentinels) askForPrimary(ctx context.Context, addr string) (string, error) {
	primary, err := redis.Strings(s.askOne(ctx, addr, "get-master-addr-by-name"))
	switch {
	case errors.Is(err, redis.ErrNil):
		return "", errors.New("it watches no such primary")
	case err != nil:
		return "", err
	case len(primary) != 2:
		return "", fmt.Errorf("unexpected answer %q", primary)
	}
	return net.JoinHostPort(primary[0], primary[1]), nil
}
