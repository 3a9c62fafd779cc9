// Package quorum says what package redlock needs of its nodes, beyond what a Driver has. The
// Drivers of packages redis and redigo have it.
package quorum

import (
	"context"
	"time"

	"github.com/go-locker/locker/driver"
)

// Node is a Driver that can be one of the nodes of a quorum. There the token is the caller's, who
// has to get the same one accepted by a majority.
type Node interface {
	driver.Driver

	// Candidate returns a fresh owner for what req asks. It makes no request. If woken is nil it
	// asks once, and place does not count. Otherwise it waits in the node's queue, in the order of
	// places: the smallest is the first, and a waiter has the same place at all nodes. When the
	// lock becomes free, it is kept for the first, for two seconds or so, and woken is called with
	// true. woken is called with false when the candidate has to look whether it has missed that:
	// after a second or so, and if the lock has expired. It does not block, and calls no method of
	// the Node or its candidates.
	Candidate(req driver.Request, place uint64, woken func(kept bool)) Candidate

	// Identify asks the server who it is. The id is that of no other server, and the same for all
	// that ask until it restarts; "" means that it does not tell. The answer tells the clock, too.
	Identify(ctx context.Context) (id string, err error)

	// ServerTime returns the clock of the server, as the latest answer has told it. known is false
	// if there has been none.
	ServerTime() (now time.Time, known bool)

	// Address returns the host:port of the server, without credentials: the same server must not be
	// two nodes of one quorum. It returns "" if the address is not known, or is not that of one
	// server.
	Address() string
}

// Candidate is one owner at one node: it asks for the lock, and is then the lease that was granted.
// Until then Release gives up its place in the node's queue, and what a request that was not
// answered may have taken.
type Candidate interface {
	driver.Lease

	// Propose asks for the lock, with a token of the caller's choice. nil means that it is granted,
	// and not to be asked for any more. Token is token then if the node accepted that, which it
	// does only in the step that grants the lease and only if the token is larger than any it has
	// accepted before; else a larger one, to which the caller may raise the others. ErrHeld means
	// that it is another's. One that does not wait has changed nothing then, and one that waits has
	// its place in the queue; earlier reports whether the lock is that of a waiter with a smaller
	// place, or kept for one. After another error the lock may have been granted. One that waits
	// may ask again.
	//
	// A node that forgets names after a time has to make sure that what it accepts is larger than
	// what it has forgotten. The nodes of package redis accept no token that is more than 30 s
	// ahead of their clock. For a name that they have forgotten they accept none that is more than
	// a second behind it, or not larger than what they remember of all names. In both cases they
	// grant the lease under a token of their own: their clock, or larger than any that they have
	// accepted.
	Propose(ctx context.Context, token uint64) (earlier bool, err error)

	// Raise makes token the lease's own, and from then on its Token, if it is that already or
	// larger than any that the node has accepted; else, or if the lease has ended, it returns
	// ErrLost. With a token no smaller than Token, ErrLost means that the lease has ended. A token
	// that is too far ahead of the node's clock is ErrUnsupported, and changes nothing. The nodes
	// of package redis accept here what is at most 12 hours ahead of their clock or of the lease's
	// own token.
	Raise(ctx context.Context, token uint64) error

	// Known reports whether the node may know the owner: then the lease is to be released.
	Known() bool
}
