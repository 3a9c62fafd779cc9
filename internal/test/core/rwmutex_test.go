package core_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
	"github.com/go-locker/locker/memory"
)

// shared runs a test in a bubble. Each call of open is another process of one space.
func shared(t *testing.T, f func(t *testing.T, open func(...locker.Option) *locker.RWMutex)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f(t, func(opts ...locker.Option) *locker.RWMutex {
			return clientOf(t, memory.NewDriver(memory.InSpace(t.Name())), opts...).RWMutex("x")
		})
	})
}

// waiting is a call that waits, and has not returned.
func waiting(t *testing.T, f func(context.Context) error) (result <-chan error, cancel func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	synctest.Wait()
	require.Empty(t, done, "it does not wait")
	return done, cancel
}

// What a context carries tells of a wait for oneself, which would stop everybody else's.
func TestRWMutex_waitingForItselfIsRefusedAtOnce(t *testing.T) {
	shared(t, func(t *testing.T, open func(...locker.Option) *locker.RWMutex) {
		m := open()
		require.NoError(t, m.Do(t.Context(), func(ctx context.Context) error {
			require.ErrorIs(t, m.RDo(ctx, nil), locker.ErrReentrant)
			require.ErrorIs(t, m.Do(ctx, nil), locker.ErrReentrant)
			ran, err := m.TryDo(ctx, nil)
			require.NoError(t, err)
			assert.False(t, ran)
			return nil
		}))
	})
}

func TestRWMutex_anUpgradeIsRefusedAtOnce(t *testing.T) {
	shared(t, func(t *testing.T, open func(...locker.Option) *locker.RWMutex) {
		m := open()
		require.NoError(t, m.RLock(t.Context()))
		require.ErrorIs(t, m.Lock(t.Context()), locker.ErrUpgrade)
		require.ErrorIs(t, m.TryLock(t.Context()), locker.ErrUpgrade)
		require.ErrorIs(t, m.Do(t.Context(), nil), locker.ErrUpgrade)
		assert.NotZero(t, m.FencingToken(), "the share lasts")
		require.NoError(t, m.Unlock(t.Context()))
		require.NoError(t, m.RDo(t.Context(), func(ctx context.Context, h *locker.Hold) error {
			beside, err := m.TryRAcquire(t.Context())
			require.NoError(t, err)
			assert.Equal(t, h.Token(), beside.Token())
			require.NoError(t, beside.Unlock(t.Context()))
			require.ErrorIs(t, m.Lock(ctx), locker.ErrUpgrade)
			require.ErrorIs(t, m.RDo(ctx, nil), locker.ErrReentrant, "it would wait behind a writer that has come in between")
			beside, err = m.TryRAcquire(ctx)
			require.NoError(t, err, "it does not wait")
			require.NoError(t, beside.Unlock(ctx))
			_, err = m.TryAcquire(ctx)
			require.ErrorIs(t, err, locker.ErrUpgrade)
			require.ErrorIs(t, m.Join(ctx, nil), locker.ErrUpgrade)
			return nil
		}))
		require.NoError(t, m.Lock(t.Context()))
		require.NoError(t, m.Unlock(t.Context()))
	})
}

func TestRWMutex_downgradeIsObserved(t *testing.T) {
	shared(t, func(t *testing.T, open func(...locker.Option) *locker.RWMutex) {
		s := &spy{}
		m := open(s.observer())
		is := func(token uint64, err error) {
			t.Helper()
			call, r := s.last()
			assert.Equal(t, locker.Call{Op: "downgrade", Name: "x"}, call)
			assert.Equal(t, token, r.Token)
			assert.Equal(t, err, r.Err, "what the caller gets")
		}
		err := m.Downgrade(t.Context())
		require.ErrorIs(t, err, locker.ErrNotHeld)
		is(0, err)
		require.NoError(t, m.Lock(t.Context()))
		is(m.FencingToken(), m.Downgrade(t.Context()))
		require.ErrorIs(t, m.Lock(t.Context()), locker.ErrUpgrade, "it is a share now")
		require.NoError(t, m.Unlock(t.Context()))
	})
}

func TestRWMutex_whoWaitsForItsOwnHoldIsToldOfClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := clientOf(t, memory.NewDriver(memory.InSpace(t.Name())))
		m := c.RWMutex("x")
		require.NoError(t, m.RLock(t.Context()))
		first, _ := waiting(t, m.RLock)
		second, _ := waiting(t, m.RLock)
		require.NoError(t, c.Close())
		require.ErrorIs(t, <-first, locker.ErrClosed)
		require.ErrorIs(t, <-second, locker.ErrClosed)
	})
}

func TestRWMutex_ofABackendWithoutShares(t *testing.T) {
	bubble(t, func(t *testing.T, b *backend) {
		m := b.client(t).RWMutex("x")
		for _, f := range []func(context.Context) error{m.RLock, m.TryRLock} {
			require.ErrorIs(t, f(t.Context()), locker.ErrUnsupported)
		}
		assert.Empty(t, b.sent)
		h, err := b.client(t).Mutex("x").Acquire(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, h.Downgrade(t.Context()), locker.ErrUnsupported)
		require.NoError(t, h.Err())
	})
}

// stubborn is a driver whose leases are downgraded as a test says.
type stubborn struct {
	driver.Driver
	answer func(context.Context) error
}

type stubbornLease struct {
	driver.Claim
	answer func(context.Context) error
}

func (d stubborn) Claim(req driver.Request) driver.Claim {
	return stubbornLease{d.Driver.Claim(req), d.answer}
}

func (l stubbornLease) Downgrade(ctx context.Context) error { return l.answer(ctx) }

func TestRWMutex_downgradeThatFails(t *testing.T) {
	late := func(answer error) func(context.Context) error { // after a pause of the process
		return func(context.Context) error { time.Sleep(2 * ttl); return answer }
	}
	for _, test := range []struct {
		name        string
		answer      func(context.Context) error
		want, after error
	}{
		{name: "an error", answer: func(context.Context) error { return errRefused }, want: errRefused},
		{name: "lost", answer: func(context.Context) error { return driver.ErrLost }, want: locker.ErrLost, after: locker.ErrLost},
		{name: "silence", answer: func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, want: context.DeadlineExceeded},
		{name: "a success after the deadline", answer: late(nil), want: locker.ErrLost, after: locker.ErrLost},
		{name: "an error after the deadline", answer: late(errRefused), want: locker.ErrLost, after: locker.ErrLost},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := stubborn{memory.NewDriver(memory.InSpace(t.Name())), test.answer}
				h, err := clientOf(t, d, locker.WithoutRenewal()).RWMutex("x").TryAcquire(t.Context())
				require.NoError(t, err)
				require.ErrorIs(t, h.Downgrade(ending(t, time.Second)), test.want)
				require.ErrorIs(t, h.Err(), test.after)
				require.ErrorIs(t, h.Unlock(t.Context()), test.after)
				require.ErrorIs(t, h.Downgrade(t.Context()), locker.ErrNotHeld)
			})
		})
	}
}

// fakeDriver implements driver.Driver as its obligations say.
type fakeDriver struct {
	b      *backend
	wrap   func(driver.Claim) driver.Claim // of all claims; nil: as they are
	shut   func() error                    // called by Close; may be nil
	closed bool
}

func (d *fakeDriver) Claim(req driver.Request) driver.Claim {
	l := &lease{b: d.b, name: req.Name, ttl: req.TTL, req: req, from: time.Now()}
	l.req.Wake = nil // which compares with nothing
	if d.wrap != nil {
		return d.wrap(l)
	}
	return l
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
func lasting(b *backend, left func(driver.Lease) time.Duration) *fakeDriver {
	return &fakeDriver{b: b, wrap: func(l driver.Claim) driver.Claim { return lastingLease{l, left} }}
}

type lastingLease struct {
	driver.Claim
	left func(driver.Lease) time.Duration
}

func (l lastingLease) Validity() time.Duration { return l.left(l.Claim) }

// forHours is what a lease says that claims to last longer than it does, or belongs to a session
// that goes on.
func forHours(driver.Lease) time.Duration { return time.Hour }

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

func (d *batcher) ExtendAll(ctx context.Context, leases []driver.Lease, ttl time.Duration) []error {
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
type scripted struct {
	*fakeDriver
	ask func(ctx context.Context, c *lease, wake func()) (time.Duration, error)
}

type scriptedClaim struct {
	*lease
	driver *scripted
	wake   func()
}

func (d *scripted) Claim(req driver.Request) driver.Claim {
	return scriptedClaim{d.fakeDriver.Claim(req).(*lease), d, req.Wake}
}

func (c scriptedClaim) Ask(ctx context.Context) (time.Duration, error) {
	return c.driver.ask(ctx, c.lease, c.wake)
}

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

// picky is a driver that honours whole seconds alone, and has a default of its own.
type picky struct{ *fakeDriver }

func (*picky) DefaultTTL() time.Duration { return 7 * time.Second }

func (d *picky) CheckTTL(ttl time.Duration) error {
	if ttl%time.Second != 0 {
		return errors.Join(locker.ErrUnsupported, errors.New("whole seconds would do"))
	}
	return nil
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
