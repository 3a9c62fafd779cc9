package locker

import (
	"context"
	"fmt"
	"time"
)

// State is how a lock stood, as the backend saw it at one moment. By the time it is read it may be another: it is for
// people who look, and for monitors. Whoever acts on it has to hold the lock.
type State struct {
	// Held says that somebody holds the lock. Where a release hands it to the first of the waiters,
	// nobody does until that one has taken it, and nobody else can.
	Held   bool
	Holder Participant // the zero Participant if nobody holds it

	// Left is for how long the hold lasts unless it is extended, by the backend's clock: the holder
	// counts for itself. It is 0 if nobody holds the lock, or the backend does not tell.
	Left time.Duration

	// Token is the fencing token of the holder, or else the last one that the backend remembers. It
	// is 0 if that knows none.
	Token uint64

	// Waiters are those who stand in the backend's queue, the next one first. One that has died
	// stands there until the backend notices. Where waiters poll there is no queue.
	Waiters []Participant
}

// Participant holds a lock, or waits for it.
type Participant struct {
	// ID is what the backend knows this attempt to hold by, and nobody else goes by at the time. It
	// is empty where the backend has none.
	ID string

	// Metadata is what WithMetadata said. It is empty, too, where the backend keeps that of holders
	// alone, as Redis does.
	Metadata string
}

// Inspect says who holds the lock called name, for how long, and who waits for it. It does not contend: it changes nothing at
// the backend, and nobody there notices. The Token is the backend's, with the Client's token base added.
//
// It takes at most half the Client's TTL. When ctx ends it returns within milliseconds, whatever the server does, with an error
// that matches ctx.Err() and context.Cause(ctx). A backend that is away is its client library's own error. A Driver that
// is no [Inspector] is ErrUnsupported, and a Client that is closed ErrClosed.
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
	inspector, ok := c.driver.(Inspector)
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
