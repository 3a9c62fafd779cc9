// Package driver is for authors of backends: it has what a backend implements. Applications use package locker, and never need this one.
//
// A [Driver] takes a [Lease] on a name at its backend, once, and the Lease is extended and released. Everything else is the work of the core, which is
// package locker: deadlines, renewal, loss, waiting, retries, clean-up and the wrapping of errors. locker.New makes a Client over a Driver.
// [Register] makes a scheme known, so that locker.Open finds the Driver by URL. Package conformance tests whether a Driver keeps what [Driver] asks;
// docs/writing-a-driver.md in the repository goes through one, a table of PostgreSQL.
//
// # What the core asks of a Driver, and when
//
// The name in a [Request] is the Client's prefix, a colon, and the name as the application gave it: locker:orders/42. In the prefix, % and : are escaped, as
// %25 and %3A. A Driver takes the whole for one opaque string.
//
//	Acquire        by TryLock, once. By Lock, if the Driver is no Queuer: again and again, 10 ms to 250 ms apart by default.
//	AcquireQueued  by Lock, if the Driver is a Queuer: once for each Lock. Acquire is for TryLock alone then, and if the Driver promises
//	               Ordered it does not overtake those who wait: while there are any it returns ErrHeld.
//	Extend         by renewal, TTL/3 after the request that granted or extended the lease was sent, and by an application.
//	ExtendAll      in its place, where the leases of several holds are due at once.
//	Release        at an Unlock, and for each hold when the Client is closed; for what Acquire or AcquireQueued returned beside an error; for a grant
//	               that came too late to be used; and for a hold that was lost while its lease may go on, even after ErrLost.
//
// Each call returns within a few milliseconds of the end of its context. What bounds a call, and what follows a failure:
//
//	Acquire        TTL/2. Lock asks again while the backend has said ErrHeld within the last TTL/2, and returns the error otherwise.
//	AcquireQueued  the context of Lock, which may have no end. The Driver bounds each of its requests, by TTL/2 at most, and makes them again itself.
//	Extend         TTL/2 for an application's, which is tried once. Two thirds of the TTL for a renewal's: one that is not answered is sent again after
//	               TTL/6, while the first may still be under way, and one that fails is sent again after TTL/24, until the hold's deadline.
//	Release        TTL/4. It is called again, 1 ms to 1 s apart, until it returns nil or ErrLost, or the TTL has passed.
//	Inspect        half the TTL of the Client, tried once; and so ForceRelease, and each page of List.
//	Warnings       5 s, tried once.
//	Close          comes last, when the contexts of all calls have ended.
//
// # What stands beside an error
//
// If the outcome of a request is unknown, return both a Lease and the error; the core releases it. That may be a place in a queue, or a request that may
// still arrive, which have no token and no validity: return a [Cleanup], a function that removes it. Return nil only if the backend took nothing for
// certain: it has said so, or nothing was sent. In doubt return something, for it costs one release.
//
// # Where a Driver comes from
//
// An application imports the package of the backend. It opens a URL, whose scheme the package has registered in its init, or makes a Client over a
// client of its own: New(client, …), which is locker.New over NewDriver(client, …). The core asks for Guarantees, DefaultTTL and CheckTTL when a Client is
// made, and then, with the option WithTTL of a Mutex, for CheckTTL. The backend need not be reachable then. A NewDriver that fails returns an [Error] with the Op new.
//
// # Failures while waiting
//
// AcquireQueued tells the core of each answer and each failure, rides out an outage of less than TTL/2, and leaves the queue however it ends. The
// Example of [Queuer] has the rule as a loop of 40 lines.
package driver
