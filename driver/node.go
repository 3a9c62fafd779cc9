package driver

import (
	"context"
	"time"
)

// Proposer is a Driver that can be one of the nodes of a quorum: there the token is the
// caller's, who has to get the same one accepted by a majority.
type Proposer interface {
	Driver

	// Propose asks once, with a token of the caller's choice. The lease's Token is token if the
	// node accepted it, which it does only in the step that grants the lease and only if the token
	// is larger than any it has accepted before; else a larger one, to which the caller may raise
	// the others. A denied Propose changes nothing.
	//
	// A node that forgets names after a time has to make sure that what it accepts is larger than
	// what it has forgotten. The nodes of package redis accept no token that is more than 30 s ahead
	// of their clock. For a name that they have forgotten they accept none that is more than a second
	// behind it, or not larger than what they remember of all names. In both cases they grant the
	// lease under a token of their own: their clock, or larger than any that they have accepted.
	Propose(ctx context.Context, req Request, token uint64) (RaisableLease, error)

	// Wait returns a lease that is asked for until it is granted. It makes no request. The node grants it to waiters in the order of
	// their places: the smallest is the first. A waiter has the same place at all nodes. When the lock becomes free, it is kept for the
	// first, for two seconds or so, and woken is called with true. woken is called with false when a waiter of this Driver has to look
	// whether it has missed that: after a second or so, and if the lock has expired. It does not block, and calls no method of the
	// Driver or its leases.
	Wait(req Request, place uint64, woken func(kept bool)) WaitingLease

	// Identify asks the server who it is. The id is that of no other server, and the same for all that
	// ask until it restarts; "" means that it does not tell. The answer tells the clock, too.
	Identify(ctx context.Context) (id string, err error)

	// ServerTime returns the clock of the server, as the latest answer has told it. known is false if there has been none.
	ServerTime() (now time.Time, known bool)

	// Address returns the host:port of the server, without credentials: the same server must not be
	// two nodes of one quorum. It returns "" if the address is not known, or is not that of one server.
	Address() string
}

// RaisableLease is a Lease whose token can be raised while it lasts.
type RaisableLease interface {
	Lease

	// Raise makes token the lease's own, and from then on its Token, if it is that already or
	// larger than any that the node has accepted; else, or if the lease has ended, it returns
	// ErrLost. With a token no smaller than Token, ErrLost means that the lease has ended. A token
	// that is too far ahead of the node's clock is ErrUnsupported, and changes nothing. The nodes of
	// package redis accept here what is at most 12 hours ahead of their clock or of the lease's own
	// token.
	Raise(ctx context.Context, token uint64) error
}

// WaitingLease is a lease that is asked for until it is granted. Until then Release gives up its place in the node's queue.
type WaitingLease interface {
	RaisableLease

	// Propose is Proposer.Propose for the one owner of this lease. If it returns nil, the lease is granted, and not to be asked for
	// any more. If it returns ErrHeld, the owner has its place in the queue; earlier reports whether the lock is that of
	// a waiter with a smaller place, or kept for one. After another error, it may have been granted. It may be called again.
	Propose(ctx context.Context, token uint64) (earlier bool, err error)

	// Known reports whether the node may know the owner: then the lease is to be released.
	Known() bool
}
