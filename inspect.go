package locker

import (
	"context"
	"fmt"

	"github.com/go-locker/locker/driver"
)

// State is what the backend knew of a lock at one moment, for people who look, and for monitors. By the time it is read it
// may have changed: to act on it, hold the lock.
type State = driver.State

// Participant holds a lock, or waits for it.
type Participant = driver.Participant

// Inspect returns who holds the lock called name, for how long, and who waits for it. It does not contend: it changes nothing at
// the backend, and nobody there notices. The Token is the backend's, with the Client's token base added.
//
// It takes at most half the Client's TTL. When ctx ends it returns within milliseconds, whatever the server does, with an error
// that matches ctx.Err() and context.Cause(ctx). If the backend is unreachable, it returns the client library's error. If the Driver
// is no [driver.Inspector] it returns ErrUnsupported, and if the Client is closed ErrClosed.
func (c *Client) Inspect(ctx context.Context, name string) (State, error) {
	s, err := c.inspect(ctx, name)
	if s.Token != 0 {
		s.Token += c.config.tokenBase
	}
	return s, wrap("inspect", name, err)
}

func (c *Client) inspect(ctx context.Context, name string) (State, error) {
	inspector, ok := c.driver.(driver.Inspector)
	switch {
	case !ok:
		return State{}, fmt.Errorf("%w: it does not tell who holds a lock", ErrUnsupported)
	case ctx.Err() != nil:
		return State{}, interrupted(ctx, nil)
	}
	if err := checkUTF8("name", name); err != nil {
		return State{}, err
	}
	return ask(ctx, c, c.config.ttl/2, func(ctx context.Context) (State, error) {
		return inspector.Inspect(ctx, c.config.qualified(name))
	})
}
