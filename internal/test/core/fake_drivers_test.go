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
