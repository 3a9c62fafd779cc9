package conformance_test

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/conformance"
	"github.com/go-locker/locker/conformance/internal/power"
)

// patched is a correct Locker, until some of its methods are replaced.
type patched struct {
	*locker.RWMutex
	ttl time.Duration
	ask func(question) // the server, if there is one, for nobody, of the name

	lock, tryLock, rlock, unlock, extend, downgrade func(context.Context) error
	token                                           func() uint64
	lost, wanted                                    func() <-chan struct{}
	deadline                                        func() time.Time
	name                                            func() string

	mu sync.Mutex // guards what a patch remembers
}

func (p *patched) Lock(ctx context.Context) error      { return p.lock(ctx) }
func (p *patched) TryLock(ctx context.Context) error   { return p.tryLock(ctx) }
func (p *patched) RLock(ctx context.Context) error     { return p.rlock(ctx) }
func (p *patched) Unlock(ctx context.Context) error    { return p.unlock(ctx) }
func (p *patched) Extend(ctx context.Context) error    { return p.extend(ctx) }
func (p *patched) Downgrade(ctx context.Context) error { return p.downgrade(ctx) }
func (p *patched) FencingToken() uint64                { return p.token() }
func (p *patched) Lost() <-chan struct{}               { return p.lost() }
func (p *patched) Wanted() <-chan struct{}             { return p.wanted() }
func (p *patched) Deadline() time.Time                 { return p.deadline() }
func (p *patched) Name() string                        { return p.name() }

func patch(m *locker.RWMutex, ttl time.Duration) *patched {
	p := &patched{ttl: ttl, name: m.Name}
	p.become(m)
	return p
}

// become makes p use another RWMutex.
func (p *patched) become(m *locker.RWMutex) {
	p.RWMutex, p.lock, p.tryLock, p.rlock, p.unlock, p.extend, p.downgrade = m, m.Lock, m.TryLock, m.RLock, m.Unlock, m.Extend, m.Downgrade
	p.token, p.lost, p.wanted, p.deadline = m.FencingToken, told(m).Lost, told(m).Wanted, told(m).Deadline
}

// teller is what the suite finds of a Mutex's current hold.
type teller interface {
	power.Loser
	power.Wanter
	power.Deadliner
}

func told(m *locker.RWMutex) (t teller) { t, _ = power.Of[teller](m); return t }

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

// anew has m end a hold that was lost, and take the lock anew.
func (p *patched) anew(m *method, take method) {
	after(m, func(ctx context.Context, err error) error {
		if errors.Is(err, locker.ErrLost) {
			_ = p.Mutex.Unlock(ctx)
			return take(ctx)
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

func unaltered(conformance.TB, *patched, *world) {}

// renamed is altered, with the names of locks changed.
func renamed(change alter, rename func(string) string) conformance.Harness {
	h, w, in := memory(), &world{counts: map[string]int{}}, space()
	h.Promises = locker.Guarantees{} // memory's are not those of what is altered
	h.RW = nil                       // no more are its shares
	h.Client = func(t conformance.TB, ttl time.Duration, renew bool) func(string) locker.Locker {
		c := open(t, in, ttl, renew)
		return func(name string) locker.Locker {
			p := patch(c.RWMutex(rename(name)), ttl)
			p.name = func() string { return name }
			change(t, p, w)
			return p
		}
	}
	h.New = func(t conformance.TB, name string, ttl time.Duration) locker.Locker {
		return h.Client(t, ttl, false)(name)
	}
	return h
}
