// A map of this package.
//
//	Mutex, RWMutex   what callers have: names and settings. Goroutines of one Mutex take turns
//	                 (mutex.go, rwmutex.go); the others contend at the backend.
//	  │ Lock, Acquire, Do, …
//	contender        one such call: asks the Driver, waits, rides out an outage (acquire.go)
//	  │ granted
//	Hold             one hold, from its grant to its end: deadline, loss, contexts (hold.go,
//	  │              context.go), Unlock and Abandon (unlock.go), who waits for it (wanted.go)
//	  ├─ renewer     of the Client: one timer over a heap of holds; extends those that are due, and
//	  │              ends those that have expired (renew.go)
//	  └─ releaser    the requests by which a lease is given back, by an Unlock, the clean-up of a
//	                 failed attempt or a lost hold, and Close (release.go)
//	request          the context of one request to the Driver: its own limit, and the caller's and
//	                 the Client's end (request.go)
//	observers        spans, metrics and logs, of which no renewal and no loss waits (observer.go,
//	                 logger.go, reports.go)
//
// What each mutex guards, and the order in which they are locked:
//
//	Client.mu        that no call is counted after Close has begun. Close locks it before renewer.mu.
//	Mutex.mu         the Mutex's own hold, and who waits for a turn. Neither Hold.mu nor renewer.mu
//	                 is locked under it.
//	Hold.mu          the state of a hold, its deadline, and the callbacks at its end. Before
//	                 renewer.mu.
//	renewer.mu       the heap, the timer and the wall clock. Last, with reports.mu.
//	contender.mu     the channel of wake-ups. Alone: a Driver calls wake under its own.
//
// No Driver, Observer or caller's function is called under any of them.

package locker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
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
	background context.Context // for work that outlives its caller; ends when Close gives up on it
	stop       context.CancelFunc

	mu    sync.Mutex     // keeps begin from adding to calls once Close has begun
	calls sync.WaitGroup // calls in progress, and our goroutines

	observers observers
}

// New makes a Client over a Driver, which from then on is the Client's: Close closes it. If New
// fails the Driver is still the caller's.
//
// It fails if d is nil, an option is not valid, the Driver does not honour the TTL, or a required
// guarantee is not promised; the last two are ErrUnsupported.
func New(d driver.Driver, opts ...Option) (*Client, error) {
	if d == nil {
		return nil, wrap("new", "", errors.New("nil Driver"))
	}
	own, err := configured(opts)
	if err != nil {
		return nil, wrap("new", "", err)
	}
	c, err := newClient(d, own)
	return c, wrap("new", "", err)
}

func newClient(d driver.Driver, own config) (*Client, error) {
	if err := unmet(d.Guarantees(), own.required); err != nil {
		return nil, err
	}
	if d, ok := d.(interface{ DefaultTTL() time.Duration }); ok && own.ttl == 0 {
		own.ttl = d.DefaultTTL()
	}
	own.ttl = cmp.Or(own.ttl, defaultTTL)
	c := &Client{driver: d, config: own}
	if err := c.checkTTL(own.ttl); err != nil {
		return nil, err
	}
	c.observers.Observer, c.observers.log = own.observer, own.logger
	c.renewer.wall.watch(clock.Ahead)
	c.open, c.shut = context.WithCancel(context.Background())
	c.background, c.stop = context.WithCancel(context.Background())
	return c, nil
}

// checkTTL returns an error if the Driver cannot honour ttl.
func (c *Client) checkTTL(ttl time.Duration) error {
	if d, ok := c.driver.(interface{ CheckTTL(ttl time.Duration) error }); ok {
		return d.CheckTTL(ttl)
	}
	return nil
}

// Mutex returns a new Mutex for the lock called name. Each call makes an independent one: after
// c.Mutex("a").Lock, c.Mutex("a").Unlock returns ErrNotHeld, so keep the Mutex. Client.Mutex makes
// no request. A name that is empty or not UTF-8, and an option that is not valid, are reported by
// the Mutex's methods.
func (c *Client) Mutex(name string, opts ...MutexOption) *Mutex {
	m := &Mutex{lockID: lockID{c, name}, settings: c.config.settings}
	if m.invalid = checkUTF8("name", name); m.invalid == nil {
		m.invalid = m.settings.apply(opts)
	}
	if least := m.settings.atLeast; least > 0 {
		m.settings.ttl = max(m.settings.ttl, covering(least))
	}
	if m.invalid == nil && m.settings.ttl != c.config.ttl {
		m.invalid = c.checkTTL(m.settings.ttl)
	}
	m.request = driver.Request{
		Name: c.config.qualified(name), Metadata: m.settings.metadata, TTL: m.settings.ttl,
	}
	return m
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

// spawn runs f in a goroutine that Close waits for. Its caller is itself one that Close waits
// for, so that the count cannot have reached zero.
func (c *Client) spawn(f func()) {
	c.calls.Go(f)
}

// closeTimeout bounds Close. Its last part, hurry, is for ending calls that the backend has not
// answered by then, and for closing connections.
const (
	closeTimeout = 5 * time.Second
	hurry        = time.Second
)

// Close ends the Client. Waiters get ErrClosed. Lost fires on every hold, and the hold's contexts
// end. Then the holds are released, 128 at a time, for at most 5 s. A hold that could not be
// released expires within one TTL. As soon as Close begins, Lock returns ErrClosed. Unlock of a
// hold that Close ended returns ErrLost. With [WithoutRelease], and with [AtLeast] before its time
// is over, holds are left to expire. A second Close does nothing.
//
// Close releases no lock while the program works under it. It waits until the function of
// [Mutex.Do] has returned, and until the cancel function of each [Hold.Context] has been called. It
// waits for at most 4 s, and no longer than the hold's deadline. A hold whose work has not ended by
// then is left to expire. So do not call Close from within such work: it would wait for itself.
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
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout-grace)
	defer cancel()
	patience, cancel := context.WithTimeout(ctx, closeTimeout-hurry)
	defer cancel()
	holds = slices.DeleteFunc(holds, func(h *Hold) bool {
		return !h.lose(CauseClosed) // an Unlock or an Abandon has just ended it, in its own way
	})
	var errs []error
	if c.config.leaveHolds {
		for _, h := range holds {
			h.leave()
		}
	} else {
		var heeded bool
		errs, heeded = within(patience, func() []error { return c.releaseAll(patience, holds) })
		if !heeded {
			errs = append(errs, fmt.Errorf("some of %d holds may last until they expire: the backend's client "+
				"has not returned from their release, though its contexts have ended", len(holds)))
		}
	}
	answered := returns(patience, c.calls.Wait)
	// Calls still in progress are given up: their contexts end, then their connections.
	c.stop()
	err, closed := within(ctx, c.driver.Close)
	if !closed {
		err = fmt.Errorf("the backend's client has not closed within %v", closeTimeout)
	}
	errs = append(errs, err)
	if !answered && !returns(ctx, c.calls.Wait) {
		errs = append(errs, fmt.Errorf("the backend has not answered every call within %v", closeTimeout))
	}
	if !c.observers.close(ctx) {
		errs = append(errs, fmt.Errorf("the log handler or the Observer has not returned within %v", closeTimeout))
	}
	return wrap("close", "", errors.Join(errs...))
}

// Closed returns a channel that is closed when Close begins, for code that waits for something
// other than a lock. It makes no request.
func (c *Client) Closed() <-chan struct{} { return c.open.Done() }

// grace is how long after the end of its context a call may take to return.
const grace = 50 * time.Millisecond

// within runs f and returns its result. It returns false if f has not returned within grace of the
// end of ctx, because a Driver ignores contexts.
func within[Result any](ctx context.Context, f func() Result) (result Result, ok bool) {
	done := make(chan Result, 1)
	go func() { done <- f() }()
	select {
	case result = <-done:
		return result, true
	case <-ctx.Done():
	}
	select {
	case result = <-done:
		return result, true
	case <-time.After(grace):
		return result, false
	}
}

// returns calls f, and reports whether it has returned before ctx ended.
func returns(ctx context.Context, f func()) bool {
	_, ok := within(ctx, func() struct{} { f(); return struct{}{} })
	return ok
}
