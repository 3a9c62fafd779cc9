// Package quorum is what package redlock needs of its nodes beyond a driver.Driver. The Drivers of
// packages redis and redigo implement it.
package quorum

import (
	"context"
	"time"

	"github.com/go-locker/locker/driver"
)

// Node is a Driver that can be a node of a quorum. The caller proposes the token, because a majority
// of the nodes has to accept the same one.
type Node interface {
	driver.Driver
	driver.BatchExtender
	driver.Operator
	driver.TTLChecker
	driver.Warner

	// Candidate returns a fresh owner for req. It makes no request. With a nil woken the candidate
	// proposes once, and place is ignored. Otherwise it enters the node's wait list, which is
	// ordered by place, smallest first; a waiter has the same place at all nodes. When the lock is
	// released, it is kept for the first waiter for about two seconds, and woken is called with
	// true. woken is called with false when the candidate has to poll, because a wake-up may have
	// been lost: after about a second, and when the lock has expired. woken does not block, and
	// calls no method of the Node or its candidates.
	Candidate(req driver.Request, place uint64, woken func(kept bool)) Candidate

	// Identify returns the identity of the server. It is unique, and the same for all callers until
	// the server restarts; "" if the server does not tell. The reply carries the server's clock.
	Identify(ctx context.Context) (id string, err error)

	// ServerTime returns the server's clock by the latest reply. known is false before the first.
	ServerTime() (now time.Time, known bool)

	// Address returns the host:port of the server, without credentials: one server must not be two
	// nodes of a quorum. It is "" if the address is unknown, or is not that of a single server.
	Address() string
}

// Candidate is an owner at one node, and the lease that it may be granted. Until it is granted,
// Release withdraws its entry in the wait list, and releases what a proposal of unknown outcome may
// have taken. It is not asked: Propose does what Ask does.
type Candidate interface {
	driver.Claim

	// Propose asks for the lock under a token of the caller's choice. nil means granted; it is not
	// called again then. Token is the proposed token if the node has accepted it, which it does only
	// in the step that grants the lease, and only if the token is larger than any that it has
	// accepted before. Otherwise Token is the node's own, larger than all that it has
	// accepted, and the caller may raise the other nodes to it.
	// ErrHeld means that another owner has the lock: a candidate that does not wait has left nothing
	// at the node then, and one that waits is in the wait list. earlier reports whether the lock is
	// granted to, or kept for, a waiter with a smaller place. Any other error is an unknown outcome.
	// A candidate that waits may propose again.
	//
	// A node that forgets names after a time accepts only tokens that are larger than what it has
	// forgotten. The nodes of package redis accept no token that is more than 30 s ahead of their
	// clock. For a forgotten name they accept none that is more than a second behind it, or not
	// larger than what they remember of all names. In both cases they grant the lease under a token
	// of their own: their clock, or one larger than any that they have accepted.
	Propose(ctx context.Context, token uint64) (earlier bool, err error)

	// Raise makes token the lease's Token, if it is that already, or is larger than any that the
	// node has accepted. Otherwise, or if the lease has ended, it returns ErrLost. With a token that
	// is no smaller than Token, ErrLost means that the lease has ended. A token that is too far
	// ahead of the node's clock is ErrUnsupported, and changes nothing. The nodes of package redis
	// accept a raise to at most 12 hours ahead of their clock or of the lease's present token.
	Raise(ctx context.Context, token uint64) error

	// Known reports whether the node may have a lease or a queue entry of this owner: then it is to
	// be released.
	Known() bool
}
