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

	mu         sync.Mutex // guards contenders, and calls against being added to after Close has begun
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

// Mutex returns a new Mutex for the lock called name. Each call makes an independent one: after c.Mutex("a").Lock, c.Mutex("a").Unlock returns
// ErrNotHeld, so keep the Mutex. It makes no request. A name that is empty or not UTF-8, and an option
// that is not valid, are reported by the Mutex's methods.
func (c *Client) Mutex(name string, opts ...MutexOption) *Mutex {
	m := &Mutex{client: c, name: name, settings: c.config.settings}
	m.invalid = m.configure(opts)
	m.request = driver.Request{Name: c.config.qualified(name), Metadata: m.settings.metadata, TTL: m.settings.ttl}
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

// Guarantees returns what the backend promises, and under which condition.
func (c *Client) Guarantees() Guarantees { return c.driver.Guarantees() }

// begin counts a call that Close has to wait for, unless the Client is closed. Each success needs
// one c.calls.Done.
func (c *Client) begin() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open.Err() != nil {
		return ErrClosed
	}
	c.calls.Add(1)
	return nil
}

// enter begins a call that ends with ErrClosed when the Client is closed. Each success needs one leave.
func (c *Client) enter(one *contender) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open.Err() != nil {
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
	forget := context.AfterFunc(c.open, cancel)
	defer forget()
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
