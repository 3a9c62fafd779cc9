package driver

import (
	"context"
	"time"
)

// Claimer is a Driver whose claims the core asks for, and waits with: it says what one request does, and waits for nothing itself.
type Claimer interface {
	Driver

	// Claim returns the claim of a fresh random owner. It makes no request.
	Claim(req Request) Claim
}

// Claim is one owner's claim to one name: it is asked for, then held, then given back. Ask is called by one goroutine at a time, and before the methods
// of Lease.
//
// Release gives back whatever there is of the claim: the lease, the place in the queue, and what a request that was not answered may still take. If
// nothing can be there, because nothing was sent or the only answer to a claim that does not wait was ErrHeld, it returns nil and makes no request. A
// request that arrives after Release was answered takes nothing, or for no longer than one TTL from when it was sent.
type Claim interface {
	Lease

	// Ask makes one request for the lock, or for a share of it.
	//
	//  1. It returns nil if the lock is granted. Asked twice it is granted once: who is granted the lock already, and asks again because the reply was
	//     lost, gets the same grant. The TTL counts from the latest request.
	//  2. It returns an error that matches ErrHeld rather than wait for another owner: a HeldError if the backend's answer tells who that is. If the
	//     Request has a Wake, the claim then has its place in the queue, from the first such answer until it is granted or released. Else nothing
	//     is left of it.
	//  3. next is for how long the core may wait, after ErrHeld, before it asks again without being woken. 0 means that nobody wakes it: the core
	//     asks again and again, 10 ms to 250 ms apart by default.
	//  4. Any other error means that the outcome is unknown: the core asks again, or calls Release. If the backend is unreachable that is the client
	//     library's error, never ErrHeld or ErrLost. For a TTL that the backend cannot honour exactly, and for a share where there are none, it is
	//     ErrUnsupported.
	//  5. Taking the lease and setting its TTL are one atomic step at the backend. The token rises with every grant of the name. It is minted in that
	//     step, or later under the lease, or with a place in a queue that grants in the order of its tokens; never before that.
	//  6. ctx bounds the request, and not the lease. It ends when Ask returns: what is to go on needs a context of its own, see context.WithoutCancel.
	Ask(ctx context.Context) (next time.Duration, err error)
}
