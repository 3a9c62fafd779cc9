package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-locker/locker"
)

// candidate is one of many of which one at a time is to lead.
type candidate struct {
	lock *locker.Mutex
	// lead does what only the leader may, and returns once ctx ends. Whatever it writes is to carry the token, and whatever
	// keeps that is to refuse an old one (see package fence): a machine that stood still does not know yet that it leads no more.
	lead func(ctx context.Context, token uint64)
	say  func(format string, args ...any)
}

// rest is how long a candidate waits after its term, or after an error: another has its turn first, and a backend
// that fails is not asked in a loop.
const rest = time.Second

// campaign leads whenever it is this candidate's turn, until ctx ends. Then the lead is given back, so that another has it
// at once, and the error reports whether that went well.
func (c candidate) campaign(ctx context.Context) error {
	for {
		err := c.lock.Do(ctx, c.term)
		switch {
		case errors.Is(err, locker.ErrClosed), errors.Is(err, locker.ErrUnsupported):
			return err // and so it would be for ever
		case ctx.Err() != nil && errors.Is(err, ctx.Err()):
			return nil // it was waiting for its turn
		case ctx.Err() != nil:
			return err
		case err != nil:
			c.say("is a candidate again in %v, after: %v", rest, err)
		}
		select {
		case <-time.After(rest):
		case <-ctx.Done():
			return nil
		}
	}
}

// term is one of leading. Its ctx ends at the latest when the lock expires; the lead has to end earlier.
func (c candidate) term(ctx context.Context) error {
	// To step down takes time too: a quarter of the hold, here. Renewal begins with two thirds of the TTL left, so that
	// one has to fail for long before this is touched.
	reserve := time.Until(c.lock.Deadline()) / 4
	ctx, cancel := c.lock.Context(ctx, reserve)
	defer cancel()
	c.lead(ctx, c.lock.FencingToken())
	return nil
}
