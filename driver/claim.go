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
	// one that looks and one that takes. All are sent within ctx, and what the first has left is given
	// back by Release.
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
	// A share is held beside others. It expires by itself, and ends no other's. Waiters of both kinds
	// stand in one queue: a share is not granted while somebody waits who asked earlier for the name
	// alone. When the shares at the head of the queue are granted, all are that have nobody but others
	// like them before them. Shares that are held at the same time have the same token, above that of
	// the lease for one alone before them, and below that of the one after them.
	Ask(ctx context.Context) (next time.Duration, err error)
}

// Downgrader is a Claim that becomes a share without an end in between, if it is held for one
// alone.
type Downgrader interface {
	Lease

	// Downgrade makes the lease a share in one atomic step at the backend: nobody else has the name
	// alone in between, and shares that wait at the head of the queue are granted. The token, the TTL
	// and the other methods stay what they are; shares granted beside it have its token. Called again
	// after a lost reply it succeeds. It returns an error that matches ErrLost if the lease has ended.
	Downgrade(ctx context.Context) error
}
