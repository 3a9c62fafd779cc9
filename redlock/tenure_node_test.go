package redlock

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// tenureNode is a server, at which requests arrive when the exploration says so.
type tenureNode struct {
	*happening
	register
	i       int
	epoch   int // of the latest request of ours that was granted
	dropped bool
	sent    int // epoch of the request that arrives
}

func (n *tenureNode) Acquire(context.Context, driver.Request) (driver.Lease, error) {
	panic("not used")
}
func (n *tenureNode) Guarantees() locker.Guarantees { return nil }
func (n *tenureNode) Close() error                  { return nil }
func (n *tenureNode) Address() string               { return "" }

func (n *tenureNode) Propose(_ context.Context, _ driver.Request, token uint64) (driver.RaisableLease, error) {
	n.owners++
	l := &tenureLease{n: n, owner: n.owners, sent: n.sent}
	if n.dropped {
		return l, errAway
	}
	ok, accepted := n.take(0, l.owner, 1, token)
	if !ok {
		return nil, locker.ErrHeld
	}
	l.token.Store(accepted)
	return l, nil
}

type tenureLease struct {
	n     *tenureNode
	owner uint64
	token atomic.Uint64
	sent  int // epoch of the request that was granted
}

func (l *tenureLease) Token() uint64 { return l.token.Load() }

// Validity is that of a whole TTL from when the latest Extend began, or less.
func (l *tenureLease) Validity() time.Duration {
	if l.sent < l.n.happening.epoch {
		return time.Minute
	}
	return 2 * time.Hour
}

func (l *tenureLease) do(ok func() bool) error {
	switch {
	case l.n.dropped:
		return errAway
	case !ok():
		return locker.ErrLost
	default:
		return nil
	}
}

func (l *tenureLease) Extend(context.Context, time.Duration) error {
	return l.do(func() bool { return l.n.register.extend(0, l.owner, 1) })
}

func (l *tenureLease) Raise(_ context.Context, token uint64) error {
	err := l.do(func() bool { return l.n.flaw.notRaised || l.n.raise(0, l.owner, token) })
	if err == nil {
		l.token.Store(token)
	}
	return err
}

func (l *tenureLease) Release(context.Context) error { panic("not used") }
