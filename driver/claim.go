package driver

import (
	"context"
	"time"
)

// Claim is one owner's claim to one name: it is asked for, then held, then given back. Ask is
// called by one goroutine at a time. Once it has granted the lease, the other methods may be called
// by several goroutines at once, Extend and Release included: an Extend that arrives after Release
// has no effect. They act only for this owner, in one atomic step at the backend, or return an
// error that matches ErrLost. Token and Validity make no request and do not block.
//
// Release gives back whatever there is of the claim: the lease, the place in the queue, and what a
// request that was not answered may still take. It returns nil, and makes no request, if the claim
// cannot have left anything: nothing was sent, or the claim does not wait and its only answer was
// ErrHeld. A request that arrives after Release was answered takes nothing. If that cannot be
// ensured, what it takes ends within one TTL of when it was sent.
type Claim interface {
	// Ask makes one attempt to get the lock, or a share of it: in most Drivers one request. A
	// backend may need several, such as one that looks and one that takes. All are sent within ctx.
	// If Ask fails after some of them, Release removes what these have left.
	//
	//  1. It returns nil if the lock is granted. Taking the lease and setting its TTL are one
	//     atomic step at the backend. The backend ends the lease when the TTL has passed: never
	//     earlier, and at most half a second later, unless the documentation of the Driver says how
	//     much later.
	//  2. Asked twice, a claim is granted once. If the lock was granted and the reply was lost, the
	//     next Ask has the same grant, for a TTL from the latest request.
	//  3. The token rises with every grant of the name, except among shares that are held at the
	//     same time. It is made at one of three moments: in the step that grants; later, while the
	//     lease is held; or when the claim gets its place in a queue that grants in the order of
	//     the tokens.
	//  4. It does not wait for another owner. If another owner has the lock, Ask returns an error
	//     that matches ErrHeld. It is a [HeldError] if the backend's answer tells who the owner is.
	//     If the Request has a Wake, the claim may have a place in the backend's queue from then
	//     on, until it is granted or released; the next Ask keeps that place. Without a Wake the
	//     claim leaves nothing at the backend, and if the Driver promises Ordered, it is not
	//     granted while others wait.
	//  5. After ErrHeld the core waits until it is woken, but no longer than the duration that Ask
	//     returned. Then it asks again, because messages may be lost. 0 is for a backend that wakes
	//     nobody: the core asks again 10 ms to 250 ms apart by default.
	//  6. Any other error means that the outcome is unknown: the core asks again, or calls Release.
	//     If the backend is unreachable, Ask returns the client library's error, never ErrHeld or
	//     ErrLost. For a TTL that the backend cannot honour exactly, and for a share if the backend
	//     has none, it returns ErrUnsupported.
	//  7. ctx bounds the request, and not the lease. ctx ends when Ask returns. Work that goes on
	//     after that needs a context of its own, see context.WithoutCancel. If the client library
	//     ignores contexts, see [Detach].
	//
	// If the claim loses its place in the queue, for example because its session ended, the Driver
	// copes with that: the next Ask takes a new place.
	//
	// Several shares may be held at the same time, but none beside an exclusive lease. Each share
	// expires by itself, and its end does not end another. Waiters of both kinds stand in one
	// queue: a share is not granted while a claim that asked earlier waits for an exclusive lease.
	// When the share at the head of the queue is granted, so are all shares behind it, up to the
	// first waiter for an exclusive lease. Shares that are held at the same time have the same
	// token. It is above that of the exclusive lease before them, and below that of the next one.
	Ask(ctx context.Context) (next time.Duration, err error)

	// Token returns the fencing token, from 1 to 2^63 - 1. It is the same for the life of the
	// lease.
	Token() uint64

	// Validity returns how much of the TTL is left now. It counts from just before the Driver sends
	// a request that grants or extends the lease. The latest such request counts. If many leases
	// share a session, it counts from the session's last confirmed contact. The core takes off the
	// allowance for drift. While Validity is above 0, the core goes on trying to release what is to
	// be released. Validity may use [time.Now]: the core itself accounts for the time for which the
	// machine was suspended.
	Validity() time.Duration

	// Extend makes the lease last ttl from now. The argument ttl is the TTL of the lease's
	// [Request]. It never revives a lease that has expired. If two calls overlap, the later of the
	// two expiry times counts.
	Extend(ctx context.Context, ttl time.Duration) error

	// Release gives the lease back. If it is called again because its reply was lost, it succeeds.
	// If the backend cannot tell this case from a lease that had expired, it returns ErrLost. The
	// core also calls it for a hold that has expired in this process while its lease still exists,
	// for example on a session that several leases share.
	Release(ctx context.Context) error
}

// Downgrader is a Claim whose exclusive lease can become a share, without an end in between.
type Downgrader interface {
	// Downgrade makes the lease a share in one atomic step at the backend: nobody else has an
	// exclusive lease in between, and shares that wait at the head of the queue are granted. The
	// token and the TTL do not change, and the other methods work as before. Shares that are
	// granted beside this lease have its token. Called again after a lost reply it succeeds. It
	// returns an error that matches ErrLost if the lease has ended.
	Downgrade(ctx context.Context) error
}

// Leaver is a Claim whose lease would end when its Driver is closed, as a lease on a session does.
type Leaver interface {
	// Leave keeps Close from ending the lease: the lease expires by itself, within one TTL. Until
	// Close is called, the lease works as if Leave had not been called. It does nothing if the
	// lease has ended. It makes no request and does not block.
	Leave()
}

// WaitNotifier is a Claim whose backend tells when others begin to wait for its name. For other
// claims the core uses [Operator]. The core calls NotifyWait or Inspect for this only if the
// application asks whether somebody waits.
type WaitNotifier interface {
	// NotifyWait reports whether somebody waits in the queue while the claim is held. If nobody
	// waits, the Driver calls wake when somebody may have come, until ctx ends. ctx ends when the
	// core looks again, when the hold is over, or when NotifyWait has not returned for TTL/2. wake
	// does not block. next says how long the core may wait until it looks again without being
	// woken: messages may be lost. 0 means that the backend wakes nobody for now. Then, and after
	// an error, the core looks again after a tenth of the TTL.
	NotifyWait(ctx context.Context, wake func()) (waits bool, next time.Duration, err error)
}

// LossNotifier is a Claim that learns early when its lease has ended, as by the end of a session.
type LossNotifier interface {
	// NotifyLost makes the Driver call f once, and soon, when the lease has ended without Release.
	// The core calls NotifyLost at most once on a lease. f does not block, and calls no method of a
	// Claim.
	NotifyLost(f func())
}
