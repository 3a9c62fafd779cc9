package redlock

import (
	"context"
	"time"

	"github.com/go-locker/locker"
	"github.com/go-locker/locker/driver"
)

// holdNode is a server, at which requests arrive when the exploration says so.
type holdNode struct {
	node0
	*happening
	register
	i       int
	epoch   int // of the latest request of ours that was granted
	dropped bool
	sent    int // epoch of the request that arrives
}

func (n *holdNode) Address() string { return "" }

func (n *holdNode) Propose(_ context.Context, _ driver.Request, token uint64) (driver.RaisableLease, error) {
	n.owners++
	l := &holdLease{n: n, sent: n.sent, registerLease: registerLease{owner: n.owners, run: n.run}}
	if n.dropped {
		return l, errRefused
	}
	ok, accepted := n.take(0, l.owner, 1, token)
	if !ok {
		return nil, locker.ErrHeld
	}
	l.token.Store(accepted)
	return l, nil
}

func (n *holdNode) run(_ context.Context, v verb, script func(r *register, now int64) bool) error {
	defer func() { n.until = min(n.until, 1) }() // there is no time
	switch {
	case n.dropped:
		return errRefused
	case v == raiseIt && n.flaw.notRaised, script(&n.register, 0):
		return nil
	default:
		return locker.ErrLost
	}
}

type holdLease struct {
	registerLease
	n    *holdNode
	sent int // epoch of the request that was granted
}

// Validity is that of a whole TTL from when the latest Extend began, or less.
func (l *holdLease) Validity() time.Duration {
	if l.sent < l.n.happening.epoch {
		return time.Minute
	}
	return 2 * time.Hour
}

func (n *holdNode) Wait(driver.Request, uint64, func(bool)) driver.WaitingLease { panic("not used") }
