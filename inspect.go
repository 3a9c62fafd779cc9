package locker

import (
	"context"
	"fmt"

	"github.com/go-locker/locker/driver"
)

// State is how a lock stood, as the backend saw it at one moment. By the time it is read it may be another: it is for
// people who look, and for monitors. Whoever acts on it has to hold the lock.
type State = driver.State

// Participant holds a lock, or waits for it.
type Participant = driver.Participant

// Inspect says who holds the lock called name, for how long, and who waits for it. It does not contend: it changes nothing at
// the backend, and nobody there notices. The Token is the backend's, with the Client's token base added.
//
// It takes at most half the Client's TTL. When ctx ends it returns within milliseconds, whatever the server does, with an error
// that matches ctx.Err() and context.Cause(ctx). A backend that is away is its client library's own error. A Driver that
// is no [driver.Inspector] is ErrUnsupported, and a Client that is closed ErrClosed.
func (c *Client) Inspect(ctx context.Context, name string) (State, error) {
	s, err := c.inspect(ctx, name)
	if err != nil {
		return State{}, wrap("inspect", name, err)
	}
	if s.Token != 0 {
		s.Token += c.config.tokenBase
	}
	return s, nil
}

func (c *Client) inspect(ctx context.Context, name string) (s State, err error) {
	inspector, ok := c.driver.(driver.Inspector)
	switch {
	case !ok:
		return s, fmt.Errorf("%w: it does not tell who holds a lock", ErrUnsupported)
	case ctx.Err() != nil:
		return s, interrupted(ctx, nil)
	}
	if err := checkUTF8("name", name); err != nil {
		return s, err
	}
	if err := c.begin(); err != nil {
		return s, err
	}
	defer c.calls.Done()
	own, cancel := within(ctx, c.config.ttl/2)
	defer cancel()
	forget := context.AfterFunc(c.open, cancel)
	defer forget()
	s, err = inspector.Inspect(own, c.config.qualified(name))
	switch {
	case err == nil:
		return s, nil
	case ctx.Err() != nil:
		return s, interrupted(ctx, nil)
	case c.open.Err() != nil:
		return s, ErrClosed
	default:
		return s, ownError(own, err)
	}
}
