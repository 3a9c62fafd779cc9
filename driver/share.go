package driver

import "context"

// Sharer is a Driver that grants shares of a name, too: leases that several may have at once, as the readers of a read-write lock do. Acquire and
// AcquireQueued take the name for one alone, as ever: no share is granted meanwhile, and they wait until every share has ended.
// Without it the core returns ErrUnsupported to those who ask for a share, never a lease for one alone.
//
//  1. The obligations of Acquire and AcquireQueued hold for the methods here, but that others with a share are no obstacle.
//  2. A share expires by itself, at its own TTL, whatever becomes of the others. It ends no other's, however often it is released.
//  3. Waiters of both kinds stand in one queue. A share is not granted while somebody waits who asked earlier for the name alone. When the shares
//     at the head of the queue are granted, all are that have nobody but others like them before them.
//  4. Shares that are held at the same time have the same token. It is above that of the lease for one alone before them, and below that of the one after them.
type Sharer interface {
	Queuer

	// AcquireShared tries once to take a share, like Acquire. It returns ErrHeld if the name is held for one alone, or somebody waits for that.
	AcquireShared(ctx context.Context, req Request) (Lease, error)

	// AcquireSharedQueued waits for a share in the backend's queue, like AcquireQueued.
	AcquireSharedQueued(ctx context.Context, req Request, answered func(error)) (Lease, error)
}

// Downgrader is a Lease, granted by Acquire or AcquireQueued of a Sharer, that becomes a share without an end in between.
type Downgrader interface {
	Lease

	// Downgrade makes the lease a share in one atomic step at the backend: nobody else has the name alone in between, and shares that wait at the head of
	// the queue are granted. The token, the TTL and the other methods stay what they are; shares granted beside it have its token. Called again
	// after a lost reply it succeeds. It returns an error that matches ErrLost if the lease has ended.
	Downgrade(ctx context.Context) error
}
