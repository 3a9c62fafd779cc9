package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-locker/locker/internal/clock"
)

// closeTimeout bounds Close. The last of it, hurry, is for closing connections under calls that the
// backend has not answered by then.
const (
	closeTimeout = 5 * time.Second
	hurry        = time.Second
)

// Close ends the Client: waiters get ErrClosed, Lost fires on every hold, then the holds are released, 128 at a time,
// for at most 5 s; what could not be released expires within one TTL. Lock returns ErrClosed from
// then on, and the Unlock of a hold that Close ended ErrLost. With [WithoutRelease] the holds are left to expire. A second Close does nothing.
//
// Close closes the backend's client if Open made it, never one that the caller brought. Its error
// says what could not be released or closed.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.open.Err() != nil {
		c.mu.Unlock()
		return nil
	}
	c.shut()
	holds := c.stopRenewing() // in this step: an Unlock that finds the Client closed leaves the release to us
	for one := range c.contenders {
		one.cancel(ErrClosed)
	}
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	patience, cancel := context.WithTimeout(ctx, closeTimeout-hurry)
	defer cancel()
	errs := c.endAll(patience, holds)
	answered := returns(patience, c.calls.Wait)
	// What is still under way is given up: its contexts end, then its connections.
	c.stop()
	errs = append(errs, c.closeDriver(ctx))
	if !answered && !returns(ctx, c.calls.Wait) {
		errs = append(errs, fmt.Errorf("the backend has not answered every call within %v", closeTimeout))
	}
	if heard := c.logs.close(ctx); !c.told.close(ctx) || !heard {
		errs = append(errs, fmt.Errorf("the log handler or the Observer has not returned within %v", closeTimeout))
	}
	return wrap("close", "", errors.Join(errs...))
}

// Closed returns a channel that is closed when Close begins, for code that waits for something else than a lock. It makes no request.
func (c *Client) Closed() <-chan struct{} { return c.open.Done() }

// closeDriver closes the Driver, and leaves it alone with that when ctx ends.
func (c *Client) closeDriver(ctx context.Context) error {
	var err error
	if !returns(ctx, func() { err = c.driver.Close() }) {
		return fmt.Errorf("the backend's client has not closed within %v", closeTimeout)
	}
	return err
}

// releases is how many of its holds a Client that closes releases at a time.
const releases = 128

// endAll loses the holds, and releases them, a few at a time, until ctx ends, or leaves them to expire.
func (c *Client) endAll(ctx context.Context, holds []*Hold) []error {
	for _, h := range holds {
		h.lose(CauseClosed)
	}
	if c.config.leaveHolds {
		for _, h := range holds {
			h.leave()
		}
		return nil
	}
	errs := make([]error, len(holds))
	places := make(chan struct{}, releases)
	var wg sync.WaitGroup
	for i, h := range holds {
		places <- struct{}{}
		wg.Go(func() {
			errs[i] = h.releaseLost(ctx)
			<-places
		})
	}
	wg.Wait()
	return errs
}

// releaseLost releases a hold that the Client's end has ended. It returns soon after ctx ends.
func (h *Hold) releaseLost(ctx context.Context) error {
	err := returning{h, clock.Now().Add(closeTimeout), ctx}.untilAnswered(ctx, nil, nil)
	if errors.Is(err, ErrLost) {
		return nil
	}
	return wrap("unlock", h.name, err)
}

// returns calls f, and reports whether it has returned before ctx ended.
func returns(ctx context.Context, f func()) bool {
	done := make(chan struct{})
	go func() {
		f()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
