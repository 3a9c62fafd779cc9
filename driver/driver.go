package driver

import (
	"context"
	"time"
)

// Driver grants leases on names at one backend. It may be used by several goroutines. It only makes
// requests: when to make them, and all waiting, is the work of the core.
//
// A Driver that can do more implements [BatchExtender], [Operator], [TTLChecker] or [Warner], too. It
// returns ErrHeld, ErrLost and ErrUnsupported as they are: the core adds the operation and the name.
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
	Metadata string        // names the owner, for people who look at the backend; any string, also an empty one, and one that is not UTF-8
	TTL      time.Duration // 5 ms or more; one that CheckTTL has accepted

	Shared bool // true: it asks for a share of the name; others may hold shares at the same time

	// Wake is nil if the claim does not wait. Otherwise the Driver calls it when another Ask may be
	// granted. It does not block, and may be called at any time. If Wake is called while Ask runs,
	// the core asks once more. After Release it does nothing. Each needless call costs a request.
	Wake func()
}

// BatchExtender is a [Driver] that extends many leases in one round trip, or in a few round trips.
type BatchExtender interface {
	// ExtendAll extends each of the leases as Claim.Extend does, and returns an error, or nil, for
	// each, in their order. Each is a claim of this Driver that was granted, with this TTL. It is
	// the value that Claim returned, not a wrapper around it.
	ExtendAll(ctx context.Context, leases []Claim, ttl time.Duration) []error
}

// Warner is a Driver that notices settings of its servers which let a promise be broken.
type Warner interface {
	// Warnings returns a sentence for each setting of the servers with which a promise may be
	// broken: what is set, what that may break, and what to set instead. It changes nothing at the
	// backend. If a server hides a setting, perhaps only from this user, Warnings returns no
	// warning and no error for it. If the backend is unreachable it returns the client library's
	// error. ctx bounds the call.
	Warnings(ctx context.Context) ([]string, error)
}

// TTLChecker is a Driver that does not honour every TTL, or has a default TTL of its own. A
// Driver may have only one of these methods.
type TTLChecker interface {
	// CheckTTL returns an error for a TTL that the backend cannot honour exactly. The error matches
	// ErrUnsupported, and names a TTL that would do. CheckTTL makes no request. The core calls it
	// before it calls Ask with that TTL.
	CheckTTL(ttl time.Duration) error

	// DefaultTTL returns the TTL for an application that chose none, such as a negotiated session
	// time-out, or 0 for the core's default, 30 s. It may ask the backend, for a bounded time. If
	// the backend is unreachable it returns a TTL that will do.
	DefaultTTL() time.Duration
}
