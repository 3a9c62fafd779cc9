package driver

import (
	"context"
	"time"
)

// Claim is one owner's claim to one name: it is asked for, then held, then given back. Ask is
// called by one goroutine at a time, and before the methods of Lease.
//
// Release gives back whatever there is of the claim: the lease, the place in the queue, and what a
// request that was not answered may still take. If nothing can be there, because nothing was sent
// or the only answer to a claim that does not wait was ErrHeld, it returns nil and makes no
// request. A request that arrives after Release was answered takes nothing, or for no longer than
// one TTL from when it was sent.
type Claim interface {
	Lease

	// Ask makes one request for the lock, or for a share of it. A backend may need several, such as
	// one that looks and one that takes. All are sent within ctx, and what the first has left is
	// given back by Release.
	//
	//  1. It returns nil if the lock is granted. Taking the lease and setting its TTL are one atomic
	//     step at the backend. The backend ends the lease when the TTL has passed: never earlier, and
	//     at most half a second later.
	//  2. Asked twice it is granted once: who is granted the lock already, and asks again because the
	//     reply was lost, has the same grant, for a TTL from the latest request.
	//  3. The token rises with every grant of the name. It is minted in the step that grants, or later
	//     under the lease, or with a place in a queue that grants in the order of its tokens; never
	//     before that.
	//  4. It returns an error that matches ErrHeld rather than wait for another owner: a HeldError if
	//     the backend's answer tells who that is. If the Request has a Wake, the claim may have a
	//     place in the backend's queue from then on, until it is granted or released, and asks again
	//     from there. Without a Wake nothing is left of it, and if the Driver promises Ordered it is
	//     not granted while others wait.
	//  5. next says how long the core may wait after ErrHeld until it asks again without being woken:
	//     messages may be lost. 0 is for a backend that wakes nobody: the core asks again 10 ms to 250
	//     ms apart by default.
	//  6. Any other error means that the outcome is unknown: the core asks again, or calls Release. If
	//     the backend is unreachable that is the client library's error, never ErrHeld or ErrLost. For
	//     a TTL that the backend cannot honour exactly, and for a share where there are none, it is
	//     ErrUnsupported.
	//  7. ctx bounds the request, and not the lease. It ends when Ask returns: what is to go on needs
	//     a context of its own, see context.WithoutCancel. If the client library ignores contexts, see
	//     [Detach].
	//
	// What else ends a wait is the Driver's business, such as the end of the session on which its
	// place stands: the next Ask begins again.
	//
	// A share is held beside others. It expires by itself, and ends no other's. Waiters of both
	// kinds stand in one queue: a share is not granted while somebody waits who asked earlier for
	// the name alone. When the shares at the head of the queue are granted, all are that have
	// nobody but others like them before them. Shares that are held at the same time have the same
	// token, above that of the lease for one alone before them, and below that of the one after
	// them.
	Ask(ctx context.Context) (next time.Duration, err error)
}

// Lease is one grant. Its methods act only for its own owner, in one atomic step at the backend, or
// return an error that matches ErrLost. They may be called by several goroutines at once, Extend
// and Release included: of an Extend that arrives after Release nothing remains. Token and Validity
// make no request and do not block.
type Lease interface {
	// Token returns the fencing token, from 1 to 2^63 - 1. It is the same for the life of the
	// lease.
	Token() uint64

	// Validity returns how much of the TTL is left now. It counts from before the request that
	// granted or last extended the lease was sent; for a session that many leases share, from its
	// last confirmed contact. The core takes off the allowance for drift. While it is above 0 the
	// core goes on trying to release what is to be released. It may count by time.Now: the core
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

// Downgrader is a Claim that becomes a share without an end in between, if it is held for one
// alone.
type Downgrader interface {
	// Downgrade makes the lease a share in one atomic step at the backend: nobody else has the name
	// alone in between, and shares that wait at the head of the queue are granted. The token, the
	// TTL and the other methods stay what they are; shares granted beside it have its token. Called
	// again after a lost reply it succeeds. It returns an error that matches ErrLost if the lease
	// has ended.
	Downgrade(ctx context.Context) error
}

// Leaver is a Claim that Close of its Driver would end, as the end of a session does.
type Leaver interface {
	// Leave keeps Close from ending the lease, if it has not ended: it expires by itself, within
	// one TTL. Until Close nothing changes. It makes no request and does not block.
	Leave()
}

// WaitNotifier is a Claim whose backend tells when others begin to wait for its name. Of other
// claims the core looks by [Inspector], if an application asks whether somebody waits. Without that
// neither is called.
type WaitNotifier interface {
	// NotifyWait reports whether somebody waits in the queue while the claim is held. If nobody
	// does, the Driver calls wake when looking again may bring more, until ctx ends: the core has
	// looked again by then, or the hold is over. wake does not block. next says how long the core
	// may wait until it looks again without being woken: messages may be lost. 0 is for a backend
	// that wakes nobody, for now: the core looks again after a tenth of the TTL, as it does after
	// an error. If there is no answer for TTL/2 ctx ends.
	NotifyWait(ctx context.Context, wake func()) (waits bool, next time.Duration, err error)
}

// LossNotifier is a Claim whose backend tells early when it has ended, as the end of a session
// does.
type LossNotifier interface {
	// NotifyLost has f called once, and soon, when the lease has ended without Release. It is
	// called at most once on a lease. f does not block, and calls no method of a Lease.
	NotifyLost(f func())
}
