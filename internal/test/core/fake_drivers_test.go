package core_test

import (
	"cmp"
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
	closed bool
}

func (d *fakeDriver) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	l := &lease{b: d.b, name: req.Name, ttl: req.TTL, from: time.Now()}
	return driver.DetachAcquire(ctx, time.Hour, func(context.Context) (driver.Lease, error) {
		unknown, err := d.b.send(ctx, call{op: acquire, name: req.Name, req: req}, func(f fault) error {
			l.from = l.from.Add(-f.age)
			return d.b.take(l)
		})
		if err != nil && !unknown {
			return nil, err
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

func (d *fakeDriver) Close() error { d.closed = true; return nil }

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

// notifier is a driver whose leases tell early that they have ended. It is of one lease.
type notifier struct {
	*fakeDriver
	lease notifyingLease
}

type notifyingLease struct {
	driver.Lease
	lost func()
}

func (d *notifier) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	l, err := d.fakeDriver.Acquire(ctx, req)
	if err != nil {
		return l, err
	}
	d.lease.Lease = l
	return &d.lease, nil
}

func (l *notifyingLease) NotifyLost(f func()) { l.lost = f }

// boastful is a driver whose leases claim to last longer than they do, or belong to a session that
// goes on.
type boastful struct{ *fakeDriver }

type boastfulLease struct{ driver.Lease }

func (d boastful) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	l, err := d.fakeDriver.Acquire(ctx, req)
	return boastfulLease{l}, err
}

func (boastfulLease) Validity() time.Duration { return time.Hour }

// reviving is a driver whose leases belong to a session that is renewed in the moment when it would end.
type reviving struct{ *fakeDriver }

type revivingLease struct{ driver.Lease }

func (d reviving) Acquire(ctx context.Context, req driver.Request) (driver.Lease, error) {
	l, err := d.fakeDriver.Acquire(ctx, req)
	return revivingLease{l}, err
}

func (l revivingLease) Validity() time.Duration { return cmp.Or(l.Lease.Validity(), ttl) }

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

// seer is a driver that says of locks what a test says.
type seer struct {
	*fakeDriver
	inspect func(ctx context.Context, name string) (locker.State, error)
}

func (d *seer) Inspect(ctx context.Context, name string) (locker.State, error) {
	return d.inspect(ctx, name)
}

// picky is a driver that honours whole seconds alone.
type picky struct{ *fakeDriver }

func (d *picky) CheckTTL(ttl time.Duration) error {
	if ttl%time.Second != 0 {
		return errors.Join(locker.ErrUnsupported, errors.New("whole seconds would do"))
	}
	return nil
}

// logs is a slog.Handler that keeps what it gets, after wait has been called.
type logs struct {
	slog.Handler
	wait func(slog.Record)

	mu      sync.Mutex
	records []slog.Record
}

func (l *logs) Enabled(context.Context, slog.Level) bool { return true }

func (l *logs) Handle(_ context.Context, r slog.Record) error {
	if l.wait != nil {
		l.wait(r)
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
