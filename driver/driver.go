package driver

import (
	"context"
	"time"
)

// Driver grants leases on names at one backend. It may be used by several goroutines. It is a [Claimer] or an [Acquirer].
//
// A Driver that can do more implements [Queuer], [BatchExtender], [Inspector], [Lister], [ForceReleaser], [TTLChecker], [TTLDefaulter], [Warner] or
// [Proposer], too. It returns ErrHeld, ErrLost and ErrUnsupported as they are: the core adds the operation and the name.
//
// Each call returns within a few milliseconds of the end of its context, whatever the backend does. What it has sent may go on. If the client library ignores
// contexts, or breaks its connection when one ends, use [Detach] and [DetachAcquire].
type Driver interface {
	// Guarantees returns what the backend promises, and under which condition. It makes no request.
	Guarantees() Guarantees

	// Close ends what the Driver has started, and closes the backend's client if the Driver made
	// it, never one that the caller brought. No goroutine outlives it. The contexts of calls that
	// are still under way have ended by then. It is called once.
	Close() error
}

// Acquirer is a Driver that is asked for a lease, once. Write a [Claimer] instead: it has less to do.
type Acquirer interface {
	Driver

	// Acquire tries once to take req.Name for req.TTL.
	//
	//  1. Each call is a contender of its own, also within one process: it acts under a fresh
	//     random owner, and never finds that it holds already.
	//  2. It returns an error that matches ErrHeld rather than wait for another owner: a HeldError if the
	//     backend's answer tells who that is.
	//  3. Taking the lease and setting its TTL are one atomic step at the backend.
	//  4. The token rises with every grant of the name. It is minted in that step, or later under
	//     the lease, or with a place in a queue that grants in the order of its tokens; never
	//     before that.
	//  5. ctx bounds the call, by TTL/2 at most, and not the lease. It ends when the call returns: what
	//     is to go on needs a context of its own, see context.WithoutCancel.
	//  6. If anything may have been taken (the reply was lost, a minority has granted), it returns
	//     the lease or a Cleanup beside the error, also beside ErrHeld. The core releases that until
	//     the backend has answered or the TTL has passed, and calls no other method of it but
	//     Validity. A request that arrives after that release was answered takes nothing, or for no
	//     longer than one TTL from when it was sent. A nil Lease means that the backend took nothing;
	//     a nil pointer in a Lease is none.
	//  7. If the backend is unreachable it returns the client library's error, never ErrHeld or
	//     ErrLost. For a TTL that the backend cannot honour exactly it returns ErrUnsupported.
	Acquire(ctx context.Context, req Request) (Lease, error)
}

// Request asks for a lease.
type Request struct {
	// Name is prefix:name. It is any non-empty UTF-8 string: it may be long, and contain NUL.
	Name     string
	Metadata string        // who asks, for people who look; any string, also an empty one, and one that is not UTF-8
	TTL      time.Duration // more than 4 ms; one that CheckTTL has accepted

	Shared bool // a share of the name, which others may have beside it

	// Wake is nil if the claim does not wait. Otherwise the Driver calls it when asking again may bring more. It does not block, and may be called at any
	// time: while Ask runs, it has the core ask once more; after Release it does nothing. A call that brings nothing costs a request.
	Wake func()
}

// Lease is one grant. Its methods act only for its own owner, in one atomic step at the backend, or
// return an error that matches ErrLost. They may be called by several goroutines at once, Extend and
// Release included: of an Extend that arrives after Release nothing remains. Token and Validity make no
// request and do not block.
type Lease interface {
	// Token returns the fencing token, from 1 to 2^63 - 1. It is the same for the life of the lease.
	Token() uint64

	// Validity returns how much of the TTL is left now. It counts from before the request that granted
	// or last extended the lease was sent; for a session that many leases share, from its last
	// confirmed contact. The core takes off the allowance for drift. While it is above 0 the core
	// goes on trying to release what is to be released. It may count by time.Now: the core
	// counts for itself the time that a machine was suspended.
	Validity() time.Duration

	// Extend makes the lease last ttl, which is that of its Request, from now. It never revives
	// a lease that has expired. Of two that overlap the later end counts.
	Extend(ctx context.Context, ttl time.Duration) error

	// Release gives the lease back. Called again after a lost reply it succeeds; if that
	// cannot be told from a lease that had expired, it returns ErrLost. The core also calls it
	// for a hold that has expired here while its lease goes on, as that of a shared session does.
	Release(ctx context.Context) error
}

// Queuer is a Driver whose backend keeps waiters in a queue and wakes them. Without it the core
// polls Acquire.
type Queuer interface {
	Acquirer

	// AcquireQueued waits in the backend's queue until the lease is granted or ctx is done. The
	// obligations of Acquire hold, but for the second.
	//
	//  1. It calls answered with ErrHeld each time the backend answers that the lease is another's, and
	//     with the client library's error each time a request fails.
	//  2. No request takes longer than TTL/2. Failures that last for TTL/2, from when the first
	//     request was sent that has failed since the last answer, end the call with the last error.
	//  3. The waiter leaves the queue however the call ends, if need be by a Cleanup beside the
	//     error.
	AcquireQueued(ctx context.Context, req Request, answered func(error)) (Lease, error)
}

// BatchExtender is a Driver that extends many leases in one round trip, or a few.
type BatchExtender interface {
	Driver

	// ExtendAll extends each of the leases as Lease.Extend does, and returns an error, or nil, for each, in their order. Each lease is
	// one that this Driver returned without an error, with this TTL: none is wrapped, and none is a Cleanup.
	ExtendAll(ctx context.Context, leases []Lease, ttl time.Duration) []error
}

// Warner is a Driver that notices settings of its servers which let a promise be broken.
type Warner interface {
	Driver

	// Warnings returns a sentence for each such setting: what is set, what that may break, and what to set instead. It changes
	// nothing at the backend. What a server does not tell, or not this user, is neither a warning nor an error. If the backend is unreachable it
	// returns the client library's error. ctx bounds the call.
	Warnings(ctx context.Context) ([]string, error)
}

// LossNotifier is a Lease whose backend tells early when it has ended, as the end of a session does.
type LossNotifier interface {
	Lease

	// NotifyLost has f called once, and soon, when the lease has ended without Release. It is
	// called at most once on a lease. f does not block, and calls no method of a Lease.
	NotifyLost(f func())
}

// Leaver is a Lease that Close of its Driver would end, as the end of a session does.
type Leaver interface {
	Lease

	// Leave keeps Close from ending the lease, if it has not ended: it expires by itself, within one TTL. Until Close nothing changes. It makes no request and does
	// not block.
	Leave()
}

// TTLChecker is a Driver that does not honour every TTL.
type TTLChecker interface {
	Driver

	// CheckTTL makes no request, and returns an error that matches ErrUnsupported and names what
	// would do, for a TTL that the backend cannot honour exactly. The core asks before it calls
	// Acquire with it.
	CheckTTL(ttl time.Duration) error
}

// TTLDefaulter is a Driver with a TTL of its own for those who chose none, as a negotiated session
// time-out is. Without it that is 30 s.
type TTLDefaulter interface {
	Driver
	// DefaultTTL returns that TTL. It may ask the backend, for a bounded time. If the backend is
	// unreachable it returns a TTL that will do.
	DefaultTTL() time.Duration
}
