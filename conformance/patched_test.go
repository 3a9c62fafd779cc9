package conformance_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/driver"
	memorylock "github.com/go-locker/locker/memory"
)

// patched is a correct Locker over memory, until some of its methods are replaced.
type patched struct {
	*locker.Mutex
	ttl   time.Duration
	space string // that its name is in

	lock, tryLock, unlock, extend func(context.Context) error
	token                         func() uint64
	lost, wanted                  func() <-chan struct{}
	deadline                      func() time.Time
	name                          func() string

	mu sync.Mutex // guards what a patch remembers
}

func (p *patched) Lock(ctx context.Context) error    { return p.lock(ctx) }
func (p *patched) TryLock(ctx context.Context) error { return p.tryLock(ctx) }
func (p *patched) Unlock(ctx context.Context) error  { return p.unlock(ctx) }
func (p *patched) Extend(ctx context.Context) error  { return p.extend(ctx) }
func (p *patched) FencingToken() uint64              { return p.token() }
func (p *patched) Lost() <-chan struct{}             { return p.lost() }
func (p *patched) Wanted() <-chan struct{}           { return p.wanted() }
func (p *patched) Deadline() time.Time               { return p.deadline() }
func (p *patched) Name() string                      { return p.name() }

func patch(m *locker.Mutex, ttl time.Duration, in string) *patched {
	return &patched{
		Mutex: m, ttl: ttl, space: in,
		lock: m.Lock, tryLock: m.TryLock, unlock: m.Unlock, extend: m.Extend,
		token: m.FencingToken, lost: of(m, (*locker.Hold).Lost), wanted: of(m, (*locker.Hold).Wanted), deadline: of(m, (*locker.Hold).Deadline), name: m.Name,
	}
}

// of returns a method of m's current hold, which returns nothing if there is none.
func of[T any](m *locker.Mutex, method func(*locker.Hold) T) func() T {
	return func() (zero T) {
		if h := m.Hold(); h != nil {
			return method(h)
		}
		return zero
	}
}

// method is one of a patched Locker.
type method = func(context.Context) error

// before has do run before each call of m.
func before(m *method, do func()) {
	inner := *m
	*m = func(ctx context.Context) error {
		do()
		return inner(ctx)
	}
}

// after has m return what do makes of its error.
func after(m *method, do func(ctx context.Context, err error) error) {
	inner := *m
	*m = func(ctx context.Context) error { return do(ctx, inner(ctx)) }
}

// instead has m return another error, or nil, in the place of one.
func instead(m *method, of, other error) {
	after(m, func(_ context.Context, err error) error {
		if errors.Is(err, of) {
			return other
		}
		return err
	})
}

// whileHeld is 0 while nothing is held, and else what do says.
func (p *patched) whileHeld(do func() uint64) func() uint64 {
	token := p.token
	return func() uint64 {
		if token() == 0 {
			return 0
		}
		return do()
	}
}

// alter replaces methods of a Locker that t's clean-up ends. world is a new value for each harness.
type alter func(t conformance.TB, p *patched, w *world)

// world is what the broken Lockers of one harness share, as a server would.
type world struct {
	sync.Mutex
	count  int
	counts map[string]int
	queues map[string][]chan struct{}
}

// next counts calls, from 1.
func (w *world) next() int {
	w.Lock()
	defer w.Unlock()
	w.count++
	return w.count
}

// altered is the memory harness with every Locker altered.
func altered(change alter) conformance.Harness {
	return renamed(change, func(name string) string { return name })
}

// renamed is altered, with the names of locks changed.
func renamed(change alter, rename func(string) string) conformance.Harness {
	h, w, in := memory(), &world{counts: map[string]int{}, queues: map[string][]chan struct{}{}}, space()
	h.Promises = locker.Guarantees{} // memory's are not those of what is altered
	h.RW = nil                       // no more are its shares
	h.New = func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
		p := patch(open(t, in, ttl, false).Mutex(rename(name)), ttl, in)
		p.name = func() string { return name }
		change(t, p, w)
		return p
	}
	h.Client = func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
		c := open(t, in, ttl, renew)
		return func(name string) locker.Locker {
			p := patch(c.Mutex(rename(name)), ttl, in)
			p.name = func() string { return name }
			change(t, p, w)
			return p
		}
	}
	return h
}

// driver is memory's, with its requests and leases altered.
type patchedDriver struct {
	driver.Driver
	request func(*driver.Request)
	lease   func(*lease, driver.Request)
	gate    *gate
	ignores string // the call that ignores its context
}

// pass is the gate's, for a call.
func (d *patchedDriver) pass(ctx context.Context, call string) error {
	if d.ignores == call {
		ctx = context.WithoutCancel(ctx)
	}
	return d.gate.pass(ctx)
}

func (d *patchedDriver) Claim(req driver.Request) driver.Claim {
	made := &lease{driver: d, call: "Ask, of a TryLock,", asked: req}
	if req.Wake != nil {
		made.call = "Ask, of a Lock,"
	}
	d.request(&req)
	made.Claim = d.Driver.Claim(req)
	return made
}

// lease is a claim of memory's, with what is not nil replaced.
type lease struct {
	driver.Claim
	driver   *patchedDriver
	call     string // which Ask is
	asked    driver.Request
	validity func() time.Duration
	extend   func(context.Context, time.Duration) error
	release  func(context.Context) error
}

func (l *lease) Ask(ctx context.Context) (time.Duration, error) {
	if err := l.driver.pass(ctx, l.call); err != nil {
		return 0, err
	}
	next, err := l.Claim.Ask(ctx)
	if err == nil {
		l.driver.lease(l, l.asked)
	}
	return next, err
}

func (l *lease) Validity() time.Duration {
	if l.validity != nil {
		return l.validity()
	}
	return l.Claim.Validity()
}

func (l *lease) Extend(ctx context.Context, ttl time.Duration) error {
	if err := l.driver.pass(ctx, "Extend"); err != nil {
		return err
	}
	if l.extend != nil {
		return l.extend(ctx, ttl)
	}
	return l.Claim.Extend(ctx, ttl)
}

func (l *lease) Release(ctx context.Context) error {
	if err := l.driver.pass(ctx, "Release"); err != nil {
		return err
	}
	if l.release != nil {
		return l.release(ctx)
	}
	return l.Claim.Release(ctx)
}

// drivenBy is the harness of Clients over an altered Driver.
func drivenBy(change func(*patchedDriver)) conformance.Harness {
	name, silent := space(), &gate{}
	dial := func(t conformance.TB, opts ...locker.Option) *locker.Client {
		d := &patchedDriver{
			Driver:  memorylock.NewDriver(memorylock.InSpace(name)),
			request: func(*driver.Request) {},
			lease:   func(*lease, driver.Request) {},
			gate:    silent,
		}
		change(d)
		c, err := locker.New(d, opts...)
		if err != nil {
			t.Fatalf("new: %v", err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	return conformance.Harness{
		TTL: memoryTTL,
		New: func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
			return dial(t, locker.WithTTL(ttl), locker.WithoutRenewal()).Mutex(name)
		},
		Client: func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
			opts := []locker.Option{locker.WithTTL(ttl)}
			if !renew {
				opts = append(opts, locker.WithoutRenewal())
			}
			c := dial(t, opts...)
			return func(name string) locker.Locker { return c.Mutex(name) }
		},
		Faults: conformance.Faults{StopServer: func(conformance.TB) func() { return silent.close() }},
	}
}

// gate is what requests pass, and wait at while the server is silent.
type gate struct {
	mu     sync.Mutex
	closed chan struct{} // nil: open
}

func (g *gate) close() (open func()) {
	c := make(chan struct{})
	g.mu.Lock()
	g.closed = c
	g.mu.Unlock()
	return func() {
		g.mu.Lock()
		g.closed = nil
		g.mu.Unlock()
		close(c)
	}
}

// pass returns when the server answers. A request that ctx ends never arrives.
func (g *gate) pass(ctx context.Context) error {
	g.mu.Lock()
	c := g.closed
	g.mu.Unlock()
	if c == nil {
		return nil
	}
	select {
	case <-c:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
