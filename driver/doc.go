// Package driver is for authors of backends: it has what a backend implements. Applications use
// package locker, and never need this one.
//
// A [Driver] makes a [Claim] for each attempt to take a lock. The methods of the Claim make the
// requests, most of them one each: Ask asks for the lock, Extend prolongs what was granted, Release
// gives it back. Everything else is the work of the core, which is package locker: waiting,
// deadlines, renewal, loss, retries, clean-up and the wrapping of errors. locker.New makes a Client
// over a Driver. [Register] makes a scheme known, so that locker.Open finds the Driver by URL.
// Package conformance tests whether a Driver keeps the rules of [Claim]; docs/writing-a-driver.md
// in the repository says in which order to write one.
//
// # What the core asks of a Driver, and when
//
// The name in a [Request] is the Client's prefix, a colon, and the name as the application gave it:
// locker:orders/42. In the prefix, % and : are escaped, as %25 and %3A. A Driver takes the whole
// for one opaque string.
//
//	Claim      for each Lock and TryLock, and once more for a Lock whose grant came too late to be
//	           used.
//	Ask        TryLock calls it until it is answered. Lock calls it until it returns nil. Lock calls
//	           it again as soon as Wake is called, or when the duration has passed that the last Ask
//	           returned. If this was 0, it is 10 ms to 250 ms, by default.
//	Extend     by an application. By renewal, TTL/3 after the sending of the latest request that
//	           granted or extended the lease.
//	ExtendAll  in place of Extend, if the leases of several holds are due at once.
//	Release    at an Unlock. For each hold when the Client is closed. For a claim that was given up,
//	           or was granted too late. For a lost hold whose lease may still exist, also after an
//	           Extend has returned ErrLost.
//
// Each call returns within a few milliseconds of the end of its context. What bounds a call, and
// what follows a failure:
//
//	Ask        TTL/2. After a failure Lock asks again. It gives up when requests have failed in a
//	           row for TTL/2, from when the first of them was sent. TryLock asks at most three times
//	           within 30 ms, and returns the failure. Lock does the same if no Ask of this Lock has
//	           returned ErrHeld yet, and the failure does not look like an outage. An outage is: a
//	           connection failed, a request had no reply, or the error has a method Temporary that
//	           returns true, as for a server that starts. A Driver of several servers does not spend
//	           the whole TTL/2 on one that hangs.
//	Extend     by an application: TTL/2, tried once. By a renewal: two thirds of the TTL, tried until
//	           the hold's deadline. If a renewal is not answered, another is sent after TTL/6, while
//	           the first may still be under way. If it fails, another is sent after TTL/24.
//	Release    TTL/4. It is called again, 0.5 ms to 1.5 s apart, until it returns nil or ErrLost, or
//	           the TTL has passed.
//	Inspect    half the TTL of the Client, tried once. The same holds for ForceRelease, and for
//	           each page of List.
//	Warnings   5 s, tried once.
//	Close      comes last, when the contexts of all calls have ended.
//
// # Where a Driver comes from
//
// An application imports the package of the backend. The package has registered the scheme of its
// URLs in init. The application opens a URL, or calls the package's New(client, …) with a client of
// its own. This New calls locker.New with what NewDriver(client, …) returns. The core calls
// Guarantees, DefaultTTL and CheckTTL when a Client is made, and CheckTTL again for a Mutex that
// has the option WithTTL. The backend need not be reachable then. A NewDriver that fails returns an
// [Error] with the Op new.
package driver
