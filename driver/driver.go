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
	// Claim returns the claim of a fresh random owner. It makes no request. Each claim is a
	// contender of its own, also within one process.
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

// BatchExtender is a Driver that extends many leases in one round trip, or a few.
type BatchExtender interface {
	// ExtendAll extends each of the leases as Lease.Extend does, and returns an error, or nil, for
	// each, in their order. Each is a claim of this Driver that was granted, with this TTL, and
	// none is wrapped.
	ExtendAll(ctx context.Context, leases []Lease, ttl time.Duration) []error
}

// Warner is a Driver that notices settings of its servers which let a promise be broken.
type Warner interface {
	// Warnings returns a sentence for each such setting: what is set, what that may break, and what
	// to set instead. It changes nothing at the backend. What a server does not tell, or not this
	// user, is neither a warning nor an error. If the backend is unreachable it returns the client
	// library's error. ctx bounds the call.
	Warnings(ctx context.Context) ([]string, error)
}

// TTLChecker is a Driver that does not honour every TTL.
type TTLChecker interface {
	// CheckTTL makes no request, and returns an error that matches ErrUnsupported and names what
	// would do, for a TTL that the backend cannot honour exactly. The core asks before it calls
	// Ask with it.
	CheckTTL(ttl time.Duration) error
}

// TTLDefaulter is a Driver with a TTL of its own for those who chose none, as a negotiated session
// time-out is. Without it that is 30 s.
type TTLDefaulter interface {
	// DefaultTTL returns that TTL. It may ask the backend, for a bounded time. If the backend is
	// unreachable it returns a TTL that will do.
	DefaultTTL() time.Duration
}
