package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/internal/clock"
)

// closeTimeout bounds Close. The last of it, hurry, is for closing connections under calls that the
// backend has not answered by then.
const (
	closeTimeout = 5 * time.Second
	hurry        = time.Second
)

// Client takes locks at one backend. It may be used by several goroutines, and should be shared:
// its holds are renewed together. Make one with [Open], with an adapter's New, or with [New].
type Client struct {
	driver  driver.Driver
	config  config
	renewer renewer

	open       context.Context // ends when Close begins
	shut       context.CancelFunc
	background context.Context // of what outlives its caller; ends when Close has waited for it
	stop       context.CancelFunc

	mu         sync.Mutex // guards what follows, and calls against being added to after Close's Wait
	closed     bool
	contenders map[*contender]struct{}
	calls      sync.WaitGroup // calls under way, and goroutines of ours

	logs     reports // to the logger
	unlogged atomic.Int64
	warned   atomic.Bool // see logWarnings
	told     reports     // to the Observer
}

// New makes a Client over a Driver, which from then on is the Client's: Close closes it. If New
// fails the Driver is still the caller's.
//
// It fails if d is nil, an option is not valid, the Driver does not honour the TTL, or a required guarantee is
// not promised; the last two are ErrUnsupported.
func New(d driver.Driver, opts ...Option) (*Client, error) {
	if d == nil {
		return nil, wrap("new", "", errors.New("nil Driver"))
	}
	own, err := configured(opts)
	if err != nil {
		return nil, wrap("new", "", err)
	}
	c := &Client{driver: d, config: own, contenders: map[*contender]struct{}{}}
	if err := unmet(d.Guarantees(), c.config.required); err != nil {
		return nil, wrap("new", "", err)
	}
	if c.config.ttl == 0 {
		c.config.ttl = defaultTTL
		if own, ok := d.(driver.TTLDefaulter); ok {
			c.config.ttl = own.DefaultTTL()
		}
	}
	if err := c.checkTTL(c.config.ttl); err != nil {
		return nil, wrap("new", "", err)
	}
	c.renewer.wall.watch(clock.Ahead)
	c.open, c.shut = context.WithCancel(context.Background())
	c.background, c.stop = context.WithCancel(context.Background())
	return c, nil
}

func configured(opts []Option) (config, error) {
	c := defaults()
	for _, o := range opts {
		if o == nil {
			return c, errors.New("nil Option")
		}
		if err := o.applyClient(&c); err != nil {
			return c, err
		}
	}
	return c, nil
}

// checkTTL asks the Driver, where it has a say.
func (c *Client) checkTTL(ttl time.Duration) error {
	if d, ok := c.driver.(driver.TTLChecker); ok {
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

// enter begins a call that ends with ErrClosed when the Client is closed. Each success needs one leave.
func (c *Client) enter(one *contender) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	c.calls.Add(1)
	c.contenders[one] = struct{}{}
	return nil
}

func (c *Client) leave(one *contender) {
	c.mu.Lock()
	delete(c.contenders, one)
	c.mu.Unlock()
	c.calls.Done()
}

func (c *Client) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// requestContext returns a context for one request. It has the values of ctx, and ends with ctx, when Close gives up, or after timeout.
// A deadline of ctx is not its own: people override Done and forget Deadline.
func (c *Client) requestContext(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	own, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	withCaller, withClient := context.AfterFunc(ctx, cancel), context.AfterFunc(c.background, cancel)
	return own, func() {
		withCaller()
		withClient()
		cancel()
	}
}

// ask makes a request that concerns no hold, for at most timeout. It ends when Close begins.
func ask[Answer any](ctx context.Context, c *Client, timeout time.Duration, request func(context.Context) (Answer, error)) (Answer, error) {
	var none Answer
	if err := c.begin(); err != nil {
		return none, err
	}
	defer c.calls.Done()
	own, cancel := within(ctx, timeout)
	defer cancel()
	defer context.AfterFunc(c.open, cancel)()
	answer, err := request(own)
	switch {
	case err == nil:
		return answer, nil
	case ctx.Err() != nil:
		return none, interrupted(ctx, nil)
	case c.open.Err() != nil:
		return none, ErrClosed
	default:
		return none, ownError(own, err)
	}
}

// spawn runs f in a goroutine that Close waits for. Its caller is itself one that Close waits
// for, so that the count cannot have reached zero.
func (c *Client) spawn(f func()) {
	c.calls.Go(f)
}

// Close ends the Client: waiters get ErrClosed, Lost fires on every hold, then the holds are released, 128 at a time,
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
	holds := c.stopRenewing() // in this step: an Unlock that finds the Client closed leaves the release to us
	c.shut()
	for one := range c.contenders {
		one.end(ErrClosed)
	}
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	patience, cancel := context.WithTimeout(ctx, closeTimeout-hurry)
	defer cancel()
	errs := c.releaseAll(patience, holds)
	answered := settled(patience, &c.calls)
	// What is still under way is given up: its contexts end, then its connections.
	c.stop()
	errs = append(errs, c.closeDriver(ctx))
	if !answered && !settled(ctx, &c.calls) {
		errs = append(errs, fmt.Errorf("the backend has not answered every call within %v", closeTimeout))
	}
	if heard := c.logs.close(ctx); !c.told.close(ctx) || !heard {
		errs = append(errs, fmt.Errorf("the log handler or the Observer has not returned within %v", closeTimeout))
	}
	return wrap("close", "", errors.Join(errs...))
}

// closeDriver closes the Driver, and leaves it alone with that when ctx ends.
func (c *Client) closeDriver(ctx context.Context) error {
	closed := make(chan error, 1)
	go func() { closed <- c.driver.Close() }()
	select {
	case err := <-closed:
		return err
	case <-ctx.Done():
		return fmt.Errorf("the backend's client has not closed within %v", closeTimeout)
	}
}

// releases is how many of its holds a Client that closes releases at a time.
const releases = 128

// releaseAll loses and releases the holds, a few at a time, until ctx ends.
func (c *Client) releaseAll(ctx context.Context, holds []*Hold) []error {
	for _, h := range holds {
		h.lose(CauseClosed)
	}
	errs := make([]error, len(holds))
	var begun atomic.Int64
	var wg sync.WaitGroup
	for range min(releases, len(holds)) {
		wg.Go(func() {
			for i := begun.Add(1) - 1; i < int64(len(holds)); i = begun.Add(1) - 1 {
				errs[i] = c.releaseLost(ctx, holds[i])
			}
		})
	}
	wg.Wait()
	return errs
}

// releaseLost releases a hold that the Client's end has ended. It returns soon after ctx ends.
func (c *Client) releaseLost(ctx context.Context, h *Hold) error {
	err := h.returning(ctx, clock.Now().Add(closeTimeout)).untilAnswered(ctx, nil, nil)
	if errors.Is(err, ErrLost) {
		return nil
	}
	return wrap("unlock", h.name, err)
}

// settled waits until all work has ended, or ctx, which is false.
func settled(ctx context.Context, work *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() {
		work.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
