package locker

import (
	"context"
	"time"
)

// Driver is what an adapter implements: it grants leases on names at one backend. Deadlines,
// renewal, loss, polling, clean-up and the wrapping of errors are the core's, so that a Driver is
// about its backend alone. A Driver may be used by several goroutines.
//
// A Driver that can do more says so by implementing [Queuer], [BatchExtender], [Proposer] or
// [TTLChecker].
type Driver interface {
	// Acquire tries once to take req.Name for req.TTL.
	//
	//  1. Each call is a contender of its own, also within one process: it acts under a fresh
	//     random owner, and never finds that it holds already.
	//  2. It returns an error that matches ErrHeld rather than wait for another owner.
	//  3. Taking the lease and setting its TTL are one atomic step at the backend.
	//  4. The token rises with every grant of the name, and is minted in that step or later,
	//     under the lease; never before it.
	//  5. ctx bounds the call, not the lease. Where the client library does not heed ctx the core
	//     stops waiting by itself, and releases a lease that arrives later.
	//  6. If the outcome is unknown (a lost reply, a time-out), it returns the lease it may have
	//     taken beside the error, and the core releases that until the backend has answered
	//     or the TTL has passed. A nil Lease says that the backend took nothing.
	//  7. An outage is the client library's error, never ErrHeld. A TTL that the backend cannot
	//     honour exactly is ErrUnsupported.
	Acquire(ctx context.Context, req Request) (Lease, error)

	// Guarantees is what the backend promises, and under which condition.
	Guarantees() Guarantees

	// Close ends what the Driver has started, and closes the backend's client if the Driver
	// made it, never one that the caller brought. No goroutine outlives it.
	Close() error
}

// Request is what a Driver is asked for.
type Request struct {
	Name     string        // with the Client's prefix; any non-empty UTF-8 string
	Metadata string        // who asks, for people who look; may be empty
	TTL      time.Duration // more than 4 ms
}

// Lease is one grant. Its methods act only for its own owner, in one atomic step at the backend, or
// return an error that matches ErrLost. They may be called by several goroutines at once, Extend and
// Release included: of an Extend that arrives after Release nothing remains.
type Lease interface {
	// Token is the fencing token, at least 1; the same for the life of the lease.
	Token() uint64

	// Validity is how much of the TTL is left now, counted from before the request that granted
	// or last extended the lease was sent; for a session that many leases share, from its last
	// confirmed contact. The allowance for drift is taken off by the core.
	Validity() time.Duration

	// Extend makes the lease last ttl from now. It never revives a lease that has lapsed.
	Extend(ctx context.Context, ttl time.Duration) error

	// Release gives the lease back. Sent again after a lost reply it succeeds; where that
	// cannot be told from a lease that had lapsed, it returns ErrLost.
	Release(ctx context.Context) error
}

// Queuer is a Driver whose backend keeps waiters in a queue and wakes them. Without it the core
// polls Acquire.
type Queuer interface {
	Driver

	// AcquireQueued waits in the backend's queue until the lease is granted or ctx is done, under
	// the obligations of Acquire but for 2. No request of it may take longer than TTL/2. It calls
	// answered with ErrHeld each time the backend says that the lease is another's, and with
	// the client's error each time a request fails. It rides out failures for at most TTL/2
	// after the last answer, and returns the error then. The waiter leaves the queue however the
	// call ends; a lease that is granted to it while it leaves is returned or released.
	AcquireQueued(ctx context.Context, req Request, answered func(error)) (Lease, error)
}

// BatchExtender is a Driver that extends many leases in one round trip, or a few.
type BatchExtender interface {
	Driver

	// ExtendAll extends each of the leases, all its own, as Lease.Extend does, and returns an
	// error, or nil, for each.
	ExtendAll(ctx context.Context, leases []Lease, ttl time.Duration) []error
}

// Proposer is a Driver that can be one of the nodes of a quorum: there the token is the
// caller's, who has to get the same one accepted by a majority.
type Proposer interface {
	Driver

	// Propose is Acquire with a token of the caller's choice. The Lease's Token is token if the
	// node accepted it, which it does only in the step that grants the lease and only if the token
	// is larger than any it has accepted before; else a larger one, above which the caller may
	// raise it. A denied Propose changes nothing. The Lease is a RaisableLease.
	Propose(ctx context.Context, req Request, token uint64) (Lease, error)
}

// RaisableLease is a Lease whose token can be raised while it lasts.
type RaisableLease interface {
	Lease

	// Raise makes token the lease's own if it is that already, or larger than any token that
	// the node has accepted, and the lease still lasts; else it returns ErrLost.
	Raise(ctx context.Context, token uint64) error
}

// LossNotifier is a Lease whose backend tells early when it has ended, as the end of a session does.
type LossNotifier interface {
	Lease

	// NotifyLost has f called once, and soon, when the lease has ended without Release. It is
	// called at most once on a lease, and f does not block.
	NotifyLost(f func())
}

// TTLChecker is a Driver that does not honour every TTL.
type TTLChecker interface {
	Driver

	// CheckTTL makes no request, and returns an error that matches ErrUnsupported and names
	// what would do, for a TTL that the backend cannot honour exactly.
	CheckTTL(ttl time.Duration) error
}
