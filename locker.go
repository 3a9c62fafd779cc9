// Package locker takes distributed locks at any of several backends, with one contract for all.
//
// A program picks its backend by URL and imports the adapter for it:
//
//	import (
//		"github.com/go-locker/locker"
//		_ "github.com/go-locker/locker/redis" // registers redis://
//	)
//
//	client, err := locker.Open(ctx, "redis://localhost:6379/0?ttl=10s&prefix=app")
//	m := client.Mutex("orders/42")
//	err = m.Do(ctx, func(ctx context.Context) error { // ctx ends if the lock is lost
//		return write(ctx, row, m.FencingToken())
//	})
//
// [Mutex.Do] waits for the lock, calls the function, and unlocks. [Mutex.TryDo] does not wait. With
// [AtLeast] a job that several machines start at the same time runs once. [Mutex.Acquire] returns a
// [Hold] for code that does not fit into a function.
//
// # What a lock is worth
//
// A lock has a TTL, and a holder may be paused past it: by the garbage collector, the scheduler, a
// suspended machine. After its lock has expired, a holder may go on as if it still had the lock. No
// lock can prevent this. Correctness therefore comes from the fencing token, which the resource
// checks: it refuses 0 and any token below the largest it has seen. See Martin Kleppmann, "How to
// do distributed locking" (2016), and [Locker.FencingToken].
//
// The backend decides how reliable the exclusion is, and how reliable the order of tokens is.
// [Client.Guarantees] returns what the backend promises. With [Require], [New] and [Open] fail if
// the backend promises less. Everything else in the contract of [Locker] holds on every backend.
//
// # Packages
//
// Four packages are built on a Client: election (one leader), semaphore (at most n holders), multi
// (several names at once), and keyed (locks that are named in each call).
//
// The adapters are memory, redis, redigo, redlock, etcd and zookeeper, and
// github.com/go-locker/locker/all imports all of these. The adapters postgres, mysql, sqlite, s3
// and kubernetes are modules of their own. Package driver is for authors of other adapters. Package
// fence, and the packages below it, are the resource's side: they refuse a stale token. Package
// locktest is for tests of code that takes locks. Package conformance tests whether a Locker keeps
// the contract. The module otel makes spans and metrics of what a Client does, and the command
// cmd/locker takes locks for scripts.
package locker

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-locker/locker/driver"
)

// Locker is one name, held by at most one holder among many processes, as far as the backend's
// Guarantees say. [Mutex] implements it; the conformance package tests any implementation.
//
// Locker is what every implementation of a lock has, and it leaves out the news of a loss: who has
// only a Locker learns of a loss by its next Extend, or by the ErrLost of Unlock, when the work is
// done. So a library that works under a lock takes a [*Client] or a [*Mutex] from its user. Their
// Do, and the contexts of their holds, end with the lock. Package locktest has a Client for tests.
//
// A Locker is not reentrant, and may be used by several goroutines: each Lock contends, and each
// success needs one Unlock, even after the hold was lost. While a lost hold awaits its Unlock, Lock
// returns [ErrLost] at once; after that Unlock, Lock contends again. Two Lockers of one name
// contend whether or not they share a client, a connection or a session.
//
// A name is any non-empty UTF-8 string, and two different names never collide.
type Locker interface {
	// Lock waits until the lock is held or ctx is done. Once the lock is held, ctx has no further
	// effect on the hold. It succeeds only if at least half a TTL is left. A hold lasts one TTL
	// unless it is extended. The TTL counts from just before the Client sends a request that takes
	// or extends the hold. The latest such request counts. For clock drift, TTL/100 + 2 ms are
	// taken off.
	//
	// When ctx ends, Lock returns within milliseconds, whatever the server does. The error then
	// matches ctx.Err() and context.Cause(ctx). If the last answer was ErrHeld, and no request has
	// failed since, it also matches ErrHeld. If a request has failed since, it matches the client
	// library's error, and not ErrHeld. If the backend is unreachable, Lock waits for TTL/2, or
	// until ctx ends, and then returns the client library's error, never ErrHeld.
	//
	// On any error the caller holds nothing. What the attempt left behind at the backend is
	// removed in the background; what cannot be reached expires within one TTL.
	Lock(ctx context.Context) error

	// Unlock ends the caller's hold, never another owner's. It returns by the hold's deadline, even
	// if ctx ends later. It returns ErrNotHeld without a hold, and ErrLost if the hold ended first.
	// After any other error, too, the caller no longer has the hold, and the backend ends it within
	// one TTL. If the backend has answered, but Unlock cannot tell whether the hold lasted until
	// now, it returns ErrLost, never nil. When ctx ends, Unlock returns within milliseconds, and
	// what is left is done in the background.
	Unlock(ctx context.Context) error

	// Extend makes the hold last one TTL from now. Extend never moves a deadline backwards. It
	// returns ErrNotHeld without a hold, and ErrLost for one that ended, which it never revives.
	// After any other error the old deadline stands. When ctx ends, Extend returns within
	// milliseconds.
	Extend(ctx context.Context) error

	// FencingToken returns the token of the current hold. It is larger than that of every earlier
	// hold of the name in any process. (Shares that are held together have one token.) Extend does
	// not change it. It is 0 when nothing is held. It makes no request. A resource must refuse 0
	// and any token below the largest it has seen.
	FencingToken() uint64
}

// The errors that callers tell apart with [errors.Is]. A failure of the backend is the error of the
// backend's client library (go-redis, pgx and so on), which [errors.As] reaches through [Error].
var (
	// ErrHeld means that another owner holds the lock.
	ErrHeld = driver.ErrHeld
	// ErrNotHeld means that there is no hold: the caller has none, or nobody has one (ForceRelease).
	ErrNotHeld = driver.ErrNotHeld
	// ErrLost means that the hold ended before its Unlock. It expired, somebody removed it, its
	// session at the backend ended (etcd, ZooKeeper), or the Client was closed.
	ErrLost = driver.ErrLost
	// ErrClosed means that the Client is closed.
	ErrClosed = driver.ErrClosed
	// ErrUnsupported means that the backend cannot do, or does not promise, what was asked.
	ErrUnsupported = driver.ErrUnsupported
)

// Error names the operation that failed, and the lock.
//
//	type Error struct {
//		Op   string // lock, trylock, unlock, extend, …
//		Name string // of the lock, without the prefix; empty where no lock is concerned
//		Err  error  // why it failed
//	}
type Error = driver.Error

func wrap(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &Error{Op: op, Name: name, Err: err}
}

// interrupted returns the error of a call that ctx ended. It matches ctx.Err(), context.Cause(ctx)
// and last, the latest answer, if that is not nil.
func interrupted(ctx context.Context, last error) error {
	err := ctx.Err()
	if cause := context.Cause(ctx); !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	if last != nil {
		err = fmt.Errorf("%w: %w", err, last)
	}
	return err
}
