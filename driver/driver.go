package driver

import (
	"context"
	"time"
)

// Driver grants leases on names at one backend. It may be used by several goroutines. It says what
// one request does, and waits for nothing itself: the core asks its claims, and waits with them.
//
// A Driver that can do more implements [BatchExtender], [Inspector], [Lister], [ForceReleaser],
// [TTLChecker], [TTLDefaulter] or [Warner], too. It returns ErrHeld, ErrLost and ErrUnsupported as
// they are: the core adds the operation and the name.
//
// Each call returns within a few milliseconds of the end of its context, whatever the backend does.
// What it has sent may go on. If the client library ignores contexts, or breaks its connection when
// one ends, use [Detach].
type Driver interface {
	// Claim returns the claim of a fresh random owner. It makes no request. Each claim is a contender
	// of its own, also within one process.
	Claim(req Request) Claim

	// Guarantees returns what the backend promises, and under which condition. It makes no request.
	Guarantees() Guarantees

	// Close ends what the Driver has started, and closes the backend's client if the Driver made
	// it, never one that the caller brought. No goroutine outlives it. The contexts of calls that
	// are still under way have ended by then. It is called once.
	Close() error
}

// Request asks for a lease.
type Request struct {
	// Name is prefix:name. It is any non-empty UTF-8 string: it may be long, and contain NUL.
	Name     string
	Metadata string        // who asks, for people who look; any string, also an empty one, and one that is not UTF-8
	TTL      time.Duration // more than 4 ms; one that CheckTTL has accepted

	Shared bool // a share of the name, which others may have beside it

	// Wake is nil if the claim does not wait. Otherwise the Driver calls it when asking again may
	// bring more. It does not block, and may be called at any time: while Ask runs, it has the core
	// ask once more; after Release it does nothing. A call that brings nothing costs a request.
	Wake func()
}

// Lease is one grant. Its methods act only for its own owner, in one atomic step at the backend, or
// return an error that matches ErrLost. They may be called by several goroutines at once, Extend
// and Release included: of an Extend that arrives after Release nothing remains. Token and Validity
// make no request and do not block.
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

// BatchExtender is a Driver that extends many leases in one round trip, or a few.
type BatchExtender interface {
	Driver

	// ExtendAll extends each of the leases as Lease.Extend does, and returns an error, or nil, for
	// each, in their order. Each lease is one that this Driver returned without an error, with this
	// TTL: none is wrapped, and none is a Cleanup.
	ExtendAll(ctx context.Context, leases []Lease, ttl time.Duration) []error
}

// Warner is a Driver that notices settings of its servers which let a promise be broken.
type Warner interface {
	Driver

	// Warnings returns a sentence for each such setting: what is set, what that may break, and what to
	// set instead. It changes nothing at the backend. What a server does not tell, or not this user,
	// is neither a warning nor an error. If the backend is unreachable it returns the client library's
	// error. ctx bounds the call.
	Warnings(ctx context.Context) ([]string, error)
}

// LossNotifier is a Lease whose backend tells early when it has ended, as the end of a session
// does.
type LossNotifier interface {
	Lease

	// NotifyLost has f called once, and soon, when the lease has ended without Release. It is
	// called at most once on a lease. f does not block, and calls no method of a Lease.
	NotifyLost(f func())
}

// Leaver is a Lease that Close of its Driver would end, as the end of a session does.
type Leaver interface {
	Lease

	// Leave keeps Close from ending the lease, if it has not ended: it expires by itself, within one
	// TTL. Until Close nothing changes. It makes no request and does not block.
	Leave()
}

// TTLChecker is a Driver that does not honour every TTL.
type TTLChecker interface {
	Driver

	// CheckTTL makes no request, and returns an error that matches ErrUnsupported and names what
	// would do, for a TTL that the backend cannot honour exactly. The core asks before it calls
	// Ask with it.
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
