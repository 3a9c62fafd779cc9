package core_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// fakeDriver implements driver.Driver as its obligations say.
type fakeDriver struct {
	b      *backend
	wrap   func(driver.Lease) driver.Lease // what is granted; nil: as it is
	shut   func() error                    // called by Close; may be nil
	closed bool
}

func (d *fakeDriver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	l := &lease{b: d.b, name: req.Name, ttl: req.TTL, from: time.Now()}
	return driver.DetachAcquire(ctx, time.Hour, func(context.Context) (driver.Lease, error) {
		unknown, err := d.b.send(ctx, call{op: acquire, name: req.Name, req: req}, func(f fault) error {
			l.from = l.from.Add(-f.age)
			return d.b.take(l)
		})
		switch {
		case err != nil && !unknown:
			return nil, err
		case err == nil && d.wrap != nil:
			return d.wrap(l), nil
		}
		return l, err
	})
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
	return &fakeDriver{b: b, wrap: func(l driver.Lease) driver.Lease { return lastingLease{l, left} }}
}

type lastingLease struct {
	driver.Lease
	left func(driver.Lease) time.Duration
}

func (l lastingLease) Validity() time.Duration { return l.left(l.Lease) }

// forHours is what a lease says that claims to last longer than it does, or belongs to a session
// that goes on.
func forHours(driver.Lease) time.Duration { return time.Hour }

// notifying is a driver whose leases tell early that they have ended, by the function that notified
// gets.
func notifying(b *backend, notified func(lost func())) *fakeDriver {
	return &fakeDriver{b: b, wrap: func(l driver.Lease) driver.Lease {
		return notifyingLease{l, notified}
	}}
}

type notifyingLease struct {
	driver.Lease
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

// scripted is a driver and queuer that does what a test says.
type scripted struct {
	*fakeDriver
	acquire func(context.Context, driver.Request) (driver.Lease, error)
	queue   func(ctx context.Context, req driver.Request, answered func(error)) (driver.Lease, error)
}

func (d *scripted) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	return d.acquire(ctx, req)
}

func (d *scripted) AcquireQueued(ctx context.Context, req driver.Request, answered func(error)) (driver.Lease, error) {
	return d.queue(ctx, req, answered)
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

// picky is a driver that honours whole seconds alone.
type picky struct{ *fakeDriver }

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
