package redlock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// node0 has what redlock does not ask of a node.
type node0 struct{}

func (node0) Claim(driver.Request) driver.Claim        { panic("not used") }
func (node0) Guarantees() locker.Guarantees            { return nil }
func (node0) Close() error                             { return nil }
func (node0) Identify(context.Context) (string, error) { return "", nil }
func (node0) ServerTime() (time.Time, bool)            { return time.Time{}, false }

// verb is what a node is asked to do.
type verb int

const (
	propose verb = iota
	raiseIt
	extendIt
	releaseIt
	verbs
)

// registerLease is the client's side of a grant by a register, to which run takes scripts.
type registerLease struct {
	run   func(ctx context.Context, v verb, script func(r *register, now int64) bool) error
	owner uint64
	until time.Time     // by its grant
	late  time.Duration // taken off the TTL of the grant: the request arrived late
	token atomic.Uint64
	sent  atomic.Int64 // releases
}

func (l *registerLease) Token() uint64           { return l.token.Load() }
func (l *registerLease) Validity() time.Duration { return time.Until(l.until) }

func (l *registerLease) Extend(ctx context.Context, ttl time.Duration) error {
	return l.run(ctx, extendIt, func(r *register, now int64) bool { return r.extend(now, l.owner, int64(ttl)) })
}

func (l *registerLease) Raise(ctx context.Context, token uint64) error {
	var far atomic.Bool
	err := l.run(ctx, raiseIt, func(r *register, now int64) bool {
		far.Store(r.tooFar(token))
		return r.raise(now, l.owner, token)
	})
	switch {
	case err == nil:
		l.token.Store(token)
	case far.Load():
		return driver.ErrUnsupported
	}
	return err
}

func (l *registerLease) Release(ctx context.Context) error {
	again := l.sent.Add(1) > 1
	return l.run(ctx, releaseIt, func(r *register, now int64) bool { return r.release(now, l.owner, l.Token(), again) })
}

// extendEach extends leases one after the other.
func extendEach(ctx context.Context, leases []driver.Lease, ttl time.Duration) []error {
	errs := make([]error, len(leases))
	for i, l := range leases {
		errs[i] = l.Extend(ctx, ttl)
	}
	return errs
}
