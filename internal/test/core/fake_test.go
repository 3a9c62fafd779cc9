package core_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"

	"github.com/go-locker/locker/internal/test/testwait"
)

// op is a kind of request.
type op string

const (
	acquire op = "acquire"
	extend  op = "extend"
	release op = "release"
	batch   op = "batch" // one ExtendAll; each of its leases is an extend too
)

// call is a request as it was sent.
type call struct {
	op    op
	name  string
	at    time.Duration // since the start of the test
	holds int           // of a batch
	req   driver.Request
	span  any // in its context, by a spy
}

// fault is what goes wrong with a request. The zero fault is nothing.
type fault struct {
	request    time.Duration // how long it takes to reach the backend
	reply      time.Duration // and the answer to come back
	lost       bool          // the request never reaches the backend
	hang       bool          // no answer ever comes
	ignoresCtx bool          // the client library does not heed ctx
	err        error         // what the client library says in place of the answer
	age        time.Duration // of the last confirmed contact of the lease's session
	then       func()        // called when the backend has done what was asked
}

var (
	unreachable     = fault{lost: true, err: errRefused}
	unheard         = fault{err: errRefused} // done, but the reply was lost
	hangs           = fault{hang: true, lost: true}
	hangIgnoringCtx = fault{hang: true, lost: true, ignoresCtx: true}

	// hanging and failing are the ways in which a backend is not there.
	hanging = map[string]fault{"hangs": hangs, "hangs, and heeds no ctx": hangIgnoringCtx}
	failing = map[string]fault{"refuses": unreachable, "hangs": hangs, "heeds no ctx": hangIgnoringCtx}
)

// backend is a lock server in memory. The names in its methods are without the default prefix.
type backend struct {
	start time.Time
	over  chan struct{} // closed when the test ends: what hangs goes on

	mu     sync.Mutex
	locks  map[string]*lease
	last   uint64
	always map[op]fault
	once   map[op][]fault
	sent   []call
}

// every has each request of a kind go wrong, or right again; next the next ones, before that.
func (b *backend) every(o op, f fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.always[o] = f
}

// everyOf is every for the requests that concern one name.
func (b *backend) everyOf(name string, o op, f fault) { b.every(o+op(" locker:"+name), f) }

func (b *backend) next(o op, f ...fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.once[o] = append(b.once[o], f...)
}

// down has every request fail, or no longer.
func (b *backend) down(f fault) {
	for _, o := range []op{acquire, extend, release, batch} {
		b.every(o, f)
	}
}

// calls are the requests of a kind, in order.
func (b *backend) calls(o op) []call {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.sent), func(c call) bool { return c.op != o })
}

// times are when they were sent, since the start of the test.
func (b *backend) times(o op) (at []time.Duration) {
	for _, c := range b.calls(o) {
		at = append(at, c.at)
	}
	return at
}

// holder is the token of the lease on name, 0 if it is free.
func (b *backend) holder(name string) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.locks["locker:"+name]; l != nil && time.Now().Before(l.until) {
		return l.token
	}
	return 0
}

// steal makes another owner the holder, whoever was it.
func (b *backend) steal(name string) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.locks, "locker:"+name)
	l := &lease{b: b, name: "locker:" + name, ttl: time.Hour, there: true}
	_ = b.take(l)
	return l.token
}

// free ends whatever lease there is on name.
func (b *backend) free(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.locks, "locker:"+name)
}

// send is one request and its answer. The outcome is unknown if the backend may have done it.
func (b *backend) send(ctx context.Context, c call, do func(fault) error) (unknown bool, err error) {
	b.mu.Lock()
	c.at, c.span = time.Since(b.start), ctx.Value(span{})
	b.sent = append(b.sent, c)
	f := b.always[c.op]
	if of, ok := b.always[c.op+op(" "+c.name)]; ok {
		f = of
	}
	if queue := b.once[c.op]; len(queue) > 0 {
		f, b.once[c.op] = queue[0], queue[1:]
	}
	b.mu.Unlock()

	if err := b.wait(ctx, f, f.request); err != nil {
		return true, err
	}
	if !f.lost {
		b.mu.Lock()
		err = do(f)
		b.mu.Unlock()
	}
	if f.then != nil {
		f.then()
	}
	pause := f.reply
	if f.hang {
		pause = 1 << 62
	}
	if err := b.wait(ctx, f, pause); err != nil {
		return !f.lost, err
	}
	if f.err != nil {
		return !f.lost, f.err
	}
	return false, err
}

func (b *backend) wait(ctx context.Context, f fault, d time.Duration) error {
	if d == 0 {
		return nil
	}
	done := ctx.Done()
	if f.ignoresCtx {
		done = nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-done:
		return ctx.Err()
	case <-b.over:
		return errors.New("the test is over")
	}
}

// take grants l if it can, once. The caller holds b.mu.
func (b *backend) take(l *lease) error {
	held := b.locks[l.name]
	lasts := held != nil && time.Now().Before(held.until)
	if lasts && held != l {
		return locker.ErrHeld
	}
	if !lasts {
		b.last++
		l.token = b.last
	}
	l.until = time.Now().Add(l.ttl)
	b.locks[l.name] = l
	return nil
}

// lease implements driver.Claim.
type lease struct {
	b        *backend
	deaf     bool
	req      driver.Request
	wake     func()
	there    bool           // the backend has it, or may
	asking   sync.WaitGroup // requests for the lock, also those that nobody waits for
	name     string
	ttl      time.Duration
	token    uint64
	until    time.Time // at the backend
	from     time.Time // when the request that it lasts from was sent, or the last contact
	released bool
}

func (l *lease) Ask(ctx context.Context) (time.Duration, error) {
	if l.req.Shared {
		return 0, locker.ErrUnsupported
	}
	from, age := time.Now(), time.Duration(0)
	l.asking.Add(1)
	return 0, l.detach(ctx, func(ctx context.Context) error {
		defer l.asking.Done()
		unknown, err := l.b.send(ctx, call{op: acquire, name: l.name, req: l.req}, func(f fault) error {
			age = f.age
			return l.b.take(l)
		})
		l.b.mu.Lock()
		defer l.b.mu.Unlock()
		l.from, l.there = from.Add(-age), l.there || unknown || err == nil
		return err
	})
}

// detach makes a request, if ctx has not ended, and waits for it until ctx ends, unless l is deaf.
func (l *lease) detach(ctx context.Context, request func(context.Context) error) error {
	switch {
	case l.deaf:
		return request(context.WithoutCancel(ctx))
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return driver.Detach(ctx, time.Hour, func(context.Context) error { return request(ctx) })
}

func (l *lease) Token() uint64 {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	return l.token
}

func (l *lease) Validity() time.Duration {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	return l.ttl - time.Since(l.from)
}

func (l *lease) Extend(ctx context.Context, ttl time.Duration) error {
	sent := time.Now()
	return l.detach(ctx, func(ctx context.Context) error {
		_, err := l.b.send(ctx, call{op: extend, name: l.name}, func(f fault) error {
			sent = sent.Add(-f.age)
			return l.prolong(ttl)
		})
		return l.heard(sent, err)
	})
}

// prolong is what the backend does to extend l. The caller holds b.mu.
func (l *lease) prolong(ttl time.Duration) error {
	if l.b.locks[l.name] != l || !time.Now().Before(l.until) {
		return locker.ErrLost
	}
	l.until = time.Now().Add(ttl)
	return nil
}

// heard takes in the answer to a request to extend that was sent at from.
func (l *lease) heard(from time.Time, err error) error {
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	if err == nil && from.After(l.from) {
		l.from = from
	}
	return err
}

func (l *lease) Release(ctx context.Context) error {
	return l.detach(ctx, func(ctx context.Context) error {
		l.asking.Wait()
		l.b.mu.Lock()
		there := l.there
		l.b.mu.Unlock()
		if !there {
			return nil
		}
		_, err := l.b.send(ctx, call{op: release, name: l.name}, func(fault) error {
			switch {
			case l.released:
				return nil
			case l.b.locks[l.name] != l || !time.Now().Before(l.until):
				return locker.ErrLost
			}
			l.released = true
			delete(l.b.locks, l.name)
			return nil
		})
		return err
	})
}

// The TTL of most tests, and what the allowance for drift leaves of it.
const (
	ttl   = 10 * time.Second
	drift = 102 * time.Millisecond
	life  = ttl - drift
)

var errRefused = errors.New("connection refused")

// bubble runs a test in no wall time over a backend of its own. It fails if a goroutine is left.
func bubble(t *testing.T, f func(t *testing.T, b *backend)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &backend{
			start: time.Now(), over: make(chan struct{}),
			locks: map[string]*lease{}, always: map[op]fault{}, once: map[op][]fault{},
		}
		t.Cleanup(func() { close(b.over) })
		f(t, b)
	})
}

// each runs a test for each of the cases, in a bubble of its own.
func each[C any](t *testing.T, cases map[string]C, f func(t *testing.T, b *backend, c C)) {
	t.Helper()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, b *backend) { f(t, b, c) })
		})
	}
}

// client makes a Client over a driver of its own, with the TTL of the tests. It is closed at the
// end.
func (b *backend) client(t *testing.T, opts ...locker.Option) *locker.Client {
	t.Helper()
	return clientOf(t, &fakeDriver{b: b}, opts...)
}

func clientOf(t *testing.T, d driver.Driver, opts ...locker.Option) *locker.Client {
	t.Helper()
	return testwait.Closed(locker.New(d, append([]locker.Option{locker.WithTTL(ttl)}, opts...)...))(t)
}

// locked is a Mutex of a Client of its own that has taken x.
func (b *backend) locked(t *testing.T, opts ...locker.Option) *locker.Mutex {
	t.Helper()
	return lockedOf(t, &fakeDriver{b: b}, opts...)
}

// lockedOf is a Mutex of a Client over d that has taken x.
func lockedOf(t *testing.T, d driver.Driver, opts ...locker.Option) *locker.Mutex {
	t.Helper()
	m := clientOf(t, d, opts...).Mutex("x")
	require.NoError(t, m.Lock(t.Context()))
	return m
}

// acquired is a hold on x.
func acquired(t *testing.T, c *locker.Client, opts ...locker.MutexOption) *locker.Hold {
	t.Helper()
	h, err := c.Mutex("x", opts...).Acquire(t.Context())
	require.NoError(t, err)
	return h
}

// fired reports whether c is closed.
func fired(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// took is how long f takes.
func took(f func()) time.Duration {
	start := time.Now()
	f()
	return time.Since(start)
}

// noErrorIs asserts that err is an error that matches none of those.
func noErrorIs(t *testing.T, err error, none ...error) {
	t.Helper()
	if assert.Error(t, err) {
		for _, n := range none {
			assert.NotErrorIs(t, err, n)
		}
	}
}

// fakeDriver implements driver.Driver as its obligations say.
type fakeDriver struct {
	b      *backend
	wrap   func(driver.Claim) driver.Claim // of all claims; nil: as they are
	shut   func() error                    // called by Close; may be nil
	ttl    time.Duration                   // the default; 0: that of the core
	whole  bool                            // it honours whole seconds below a minute alone
	deaf   bool                            // it heeds no context
	closed bool
}

func (d *fakeDriver) Claim(req driver.Request) driver.Claim {
	l := &lease{b: d.b, deaf: d.deaf, name: req.Name, ttl: req.TTL, req: req, wake: req.Wake, from: time.Now()}
	l.req.Wake = nil // which compares with nothing
	if d.wrap != nil {
		return d.wrap(l)
	}
	return l
}

func (d *fakeDriver) DefaultTTL() time.Duration { return d.ttl }

func (d *fakeDriver) CheckTTL(ttl time.Duration) error {
	if d.whole && (ttl%time.Second != 0 || ttl >= time.Minute) {
		return errors.Join(locker.ErrUnsupported, errors.New("whole seconds would do"))
	}
	return nil
}

func (d *fakeDriver) Guarantees() locker.Guarantees {
	return locker.Guarantees{
		locker.Exclusive: {Level: locker.LevelYes},
		locker.Fencing:   {Level: locker.LevelConditional, Condition: "while the moon is full"},
		locker.Failover:  {Level: locker.LevelNo, Condition: "there is one of it"},
	}
}

func (d *fakeDriver) Close() error {
	d.closed = true
	if d.shut != nil {
		return d.shut()
	}
	return nil
}

// lasting is a driver whose leases say of how long they last what left says.
func lasting(b *backend, left func(driver.Claim) time.Duration) *fakeDriver {
	return &fakeDriver{b: b, wrap: func(l driver.Claim) driver.Claim { return lastingLease{l, left} }}
}

type lastingLease struct {
	driver.Claim
	left func(driver.Claim) time.Duration
}

func (l lastingLease) Validity() time.Duration { return l.left(l.Claim) }

// forHours is what a lease says that claims to last longer than it does, or belongs to a session
// that goes on.
func forHours(driver.Claim) time.Duration { return time.Hour }

// notifying is a driver whose leases tell early that they have ended, by the function that notified
// gets.
func notifying(b *backend, notified func(lost func())) *fakeDriver {
	return &fakeDriver{b: b, wrap: func(l driver.Claim) driver.Claim {
		return notifyingLease{l, notified}
	}}
}

type notifyingLease struct {
	driver.Claim
	notified func(lost func())
}

func (l notifyingLease) NotifyLost(f func()) { l.notified(f) }

// batcher is a driver that extends many leases in one round trip.
type batcher struct {
	*fakeDriver
	short bool // answers for one lease too few
}

func (d *batcher) ExtendAll(ctx context.Context, leases []driver.Claim, ttl time.Duration) []error {
	sent := time.Now()
	errs := make([]error, len(leases))
	_, err := d.b.send(ctx, call{op: batch, holds: len(leases)}, func(fault) error {
		for i, l := range leases {
			errs[i] = l.(*lease).prolong(ttl)
		}
		return nil
	})
	for i := range errs {
		errs[i] = leases[i].(*lease).heard(sent, errors.Join(errs[i], err))
	}
	if d.short {
		return errs[1:]
	}
	return errs
}

// scripted is a driver whose claims are asked as a test says.
func scripted(b *backend, ask func(context.Context, *lease) (time.Duration, error)) *fakeDriver {
	return &fakeDriver{b: b, wrap: func(l driver.Claim) driver.Claim { return scriptedLease{l.(*lease), ask} }}
}

type scriptedLease struct {
	*lease
	ask func(context.Context, *lease) (time.Duration, error)
}

func (l scriptedLease) Ask(ctx context.Context) (time.Duration, error) { return l.ask(ctx, l.lease) }

// operable is a driver that does for operators what a test says.
type operable struct {
	*fakeDriver
	inspect  func(ctx context.Context, name string) (locker.State, error)
	list     func(prefix string) driver.Pager
	force    func(ctx context.Context, name string, shown locker.State) error
	warnings func(ctx context.Context) ([]string, error)
}

func (d *operable) Inspect(ctx context.Context, name string) (locker.State, error) {
	return d.inspect(ctx, name)
}

func (d *operable) List(prefix string) driver.Pager { return d.list(prefix) }

func (d *operable) ForceRelease(ctx context.Context, name string, shown locker.State) error {
	return d.force(ctx, name, shown)
}

func (d *operable) Warnings(ctx context.Context) ([]string, error) {
	if d.warnings == nil {
		return nil, nil
	}
	return d.warnings(ctx)
}

// logs is a slog.Handler that keeps what it gets. It calls wait first, if there is one: when it is
// asked for its level, or to handle.
type logs struct {
	slog.Handler
	asked bool
	wait  func()

	mu      sync.Mutex
	records []slog.Record
}

func (l *logs) Enabled(context.Context, slog.Level) bool {
	if l.asked {
		l.wait()
	}
	return true
}

func (l *logs) Handle(_ context.Context, r slog.Record) error {
	if l.wait != nil && !l.asked {
		l.wait()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records = append(l.records, r)
	return nil
}

func (l *logs) messages() (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.records {
		all = append(all, r.Message)
	}
	return all
}

// doubtful is a claim that ends the test if another method is called than those it has.
type doubtful struct {
	driver.Claim // nil

	of driver.Claim
}

func (l doubtful) Ask(ctx context.Context) (time.Duration, error) { return l.of.Ask(ctx) }
func (l doubtful) Validity() time.Duration                        { return l.of.Validity() }
func (l doubtful) Release(ctx context.Context) error              { return l.of.Release(ctx) }
func (doubtful) NotifyLost(func())                                { panic("there is no lease to lose") }

// Whether it waits or not, and whatever the error is.
func TestDriver_claimOfUnknownOutcomeIsReleasedAndAskedForNothingButItsValidity(t *testing.T) {
	each(t, map[string]func(*locker.Mutex, context.Context) error{
		"once": (*locker.Mutex).TryLock, "waiting": (*locker.Mutex).Lock,
	}, func(t *testing.T, b *backend, lock func(*locker.Mutex, context.Context) error) {
		b.every(release, unreachable)
		b.every(acquire, unheard)
		d := &fakeDriver{b: b, wrap: func(c driver.Claim) driver.Claim { return doubtful{of: c} }}
		require.ErrorIs(t, lock(clientOf(t, d).Mutex("x"), t.Context()), errRefused)
		time.Sleep(3 * ttl)
		synctest.Wait()
		assert.Greater(t, len(b.calls(release)), 5)
	})
}
