package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"
)

// closeTimeout bounds what Close waits for: releases, and calls that the backend has not answered.
const closeTimeout = 5 * time.Second

// Client takes locks at one backend. It may be used by several goroutines, and should be shared:
// its holds are renewed together. Make one with [Open], with an adapter's New, or with [New].
type Client struct {
	driver  Driver
	config  config
	renewer renewer

	// background bounds what outlives its caller: clean-up, renewals. It ends with Close.
	background context.Context
	stop       context.CancelFunc

	mu      sync.Mutex // guards closed, and calls against being added to after Close's Wait
	closed  bool
	closing chan struct{}  // closed when Close begins
	calls   sync.WaitGroup // calls under way, and goroutines of ours
}

// New makes a Client over a Driver, which from then on is the Client's: Close closes it. If New
// fails the Driver is still the caller's.
//
// It fails if an option is not valid or a required guarantee is not promised.
func New(d Driver, opts ...Option) (*Client, error) {
	if d == nil {
		return nil, wrap("new", "", errors.New("nil Driver"))
	}
	c := &Client{driver: d, config: defaults(), closing: make(chan struct{})}
	for _, o := range opts {
		if o == nil {
			return nil, wrap("new", "", errors.New("nil Option"))
		}
		if err := o.applyClient(&c.config); err != nil {
			return nil, wrap("new", "", err)
		}
	}
	if err := d.Guarantees().unmet(c.config.required); err != nil {
		return nil, wrap("new", "", err)
	}
	if err := c.checkTTL(c.config.ttl); err != nil {
		return nil, wrap("new", "", err)
	}
	c.background, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// checkTTL asks the Driver, where it has a say.
func (c *Client) checkTTL(ttl time.Duration) error {
	if d, ok := c.driver.(TTLChecker); ok {
		return d.CheckTTL(ttl)
	}
	return nil
}

// Mutex is the lock called name. It makes no request. A name that is empty or not UTF-8, and an option
// that is not valid, are reported by the Mutex's methods.
func (c *Client) Mutex(name string, opts ...MutexOption) *Mutex {
	m := &Mutex{client: c, name: name, qualified: c.config.qualified(name), settings: c.config.settings}
	m.invalid = m.configure(opts)
	return m
}

func (m *Mutex) configure(opts []MutexOption) error {
	if err := checkUTF8("name", m.name); err != nil {
		return err
	}
	for _, o := range opts {
		if o == nil {
			return errors.New("nil MutexOption")
		}
		if err := o.applyMutex(&m.settings); err != nil {
			return err
		}
	}
	if len(opts) == 0 {
		return nil // the Client's own TTL has been checked
	}
	return m.client.checkTTL(m.settings.ttl)
}

func checkUTF8(what, s string) error {
	switch {
	case s == "":
		return fmt.Errorf("%s is empty", what)
	case !utf8.ValidString(s):
		return fmt.Errorf("%s %q is not UTF-8", what, s)
	default:
		return nil
	}
}

// Guarantees is what the backend promises, and under which condition.
func (c *Client) Guarantees() Guarantees { return c.driver.Guarantees() }

// begin counts a call that Close has to wait for, unless the Client is closed. Each success needs
// one c.calls.Done.
func (c *Client) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.calls.Add(1)
	return nil
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// within calls f, and returns when ctx ends whether or not f heeds it.
func (c *Client) within(ctx context.Context, f func(context.Context) error) error {
	answer := make(chan error, 1)
	c.spawn(func() { answer <- f(ctx) })
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// spawn runs f in a goroutine that Close waits for. Its caller is itself one that Close waits
// for, so that the count cannot have reached zero.
func (c *Client) spawn(f func()) {
	c.calls.Go(f)
}

// Close ends the Client: waiters get ErrClosed, Lost fires on every hold, then the holds are released,
// for at most 5 s; what could not be released lapses within one TTL. Lock returns ErrClosed from
// then on, and the Unlock of a hold that Close ended ErrLost. A second Close does nothing.
//
// Close closes the backend's client if Open made it, never one that the caller brought. Its error
// says what could not be released or closed.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	close(c.closing)
	c.mu.Unlock()

	deadline := time.NewTimer(closeTimeout)
	defer deadline.Stop()
	ctx, cancel := context.WithTimeout(c.background, closeTimeout)
	defer cancel()
	errs := c.releaseAll(ctx)
	answered := c.settled(deadline.C)
	// What is still under way is given up: its contexts end, then its connections.
	c.stop()
	if err := c.driver.Close(); err != nil {
		errs = append(errs, err)
	}
	if !answered {
		errs = append(errs, errors.New("the backend has not answered every call within 5s"))
		c.settled(time.After(time.Second))
	}
	return wrap("close", "", errors.Join(errs...))
}

// releaseAll loses and releases every hold, a few at a time, until ctx ends.
func (c *Client) releaseAll(ctx context.Context) []error {
	holds := c.stopRenewing()
	for _, h := range holds {
		h.lose("the client is closed")
	}
	failed := forEach(holds, func(h *Hold) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := c.within(ctx, h.lease.Release)
		if errors.Is(err, ErrLost) {
			return nil
		}
		return err
	})
	for i, h := range holds {
		failed[i] = wrap("unlock", h.name, failed[i])
	}
	return failed
}

// settled waits until every call and goroutine has ended, or for giveUp.
func (c *Client) settled(giveUp <-chan time.Time) bool {
	done := make(chan struct{})
	go func() {
		c.calls.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-giveUp:
		return false
	}
}

// forEach calls f on each item, at most concurrency at a time, and returns the errors in order.
func forEach[T any](items []T, f func(T) error) []error {
	const concurrency = 32
	errs := make([]error, len(items))
	var wg sync.WaitGroup
	slots := make(chan struct{}, concurrency)
	for i, item := range items {
		slots <- struct{}{}
		wg.Go(func() {
			errs[i] = f(item)
			<-slots
		})
	}
	wg.Wait()
	return errs
}
