// Package fence is the resource's side of a lock: it refuses a write whose fencing token is stale.
//
// A holder may be paused past its lock's TTL, by the garbage collector, the scheduler or a
// suspended machine, and then write as if it still held the lock. No lock can stop it; the resource
// can. Each holder has a token that is larger than those of all earlier holders of the name
// ([github.com/go-locker/locker.Locker.FencingToken]), and sends it with each write. The resource
// refuses 0 and any token below the largest that it has seen. An equal token comes from the same
// holder. See Martin Kleppmann, "How to do distributed locking" (2016).
//
// The check and the write have to be one step, or the pause may fall between the two. So the
// packages below this one put the check where the write is: into the SQL statement or its
// transaction, the script, the transaction of etcd, the version of ZooKeeper's node, the rename of
// a file. [Guard] is for resources that have no such place, and [Mark] for resources that can only
// compare for equality.
//
// A fence puts holders in order. It does not put the requests of one holder in order, nor make them
// idempotent: a request that comes late or twice, under a token that is still the newest, is
// accepted. A fence knows only the tokens that it has seen. So a holder that reads before it writes
// must first give its token to the resource.
package fence

import (
	"context"
	"errors"
	"fmt"
)

// ErrStale means that the token of a write is 0, or below the largest that the resource has seen.
// The request that was refused has written nothing. But if the client library repeats a request
// whose reply was lost, the first one may have written. The caller has lost the lock, and must not
// repeat the write with the same token. (Exec of package sqlfence has more reasons: see there.)
var ErrStale = errors.New("stale fencing token")

// ErrUnknown means that the resource cannot tell which tokens it has seen: what it keeps as the
// newest token is no token, or is missing although it has to be there. The request that was refused
// has written nothing. But if the client library repeats a request whose reply was lost, the first
// one may have written. All other writes are refused, too, until somebody stores the newest token
// there. The package does not guess it. The error names the place, if the resource tells it.
var ErrUnknown = errors.New("it is not known which tokens the resource has seen")

// StaleError is the error of a refused write. It matches [ErrStale].
type StaleError struct {
	Resource string // as the caller calls it
	Token    uint64 // the write's, which is refused
	Newest   uint64 // the largest token seen; 0 if the resource does not tell, or has seen none
}

// Error returns the message, in one line.
func (e *StaleError) Error() string {
	switch {
	case e.Token == 0:
		return fmt.Sprintf("fence: %q: %v: 0, which is the token of nobody: the lock is not held", e.Resource, ErrStale)
	case e.Newest == 0:
		return fmt.Sprintf("fence: %q: %v: %d, a later holder has written, or there is nothing to write to", e.Resource, ErrStale, e.Token)
	default:
		return fmt.Sprintf("fence: %q: %v: %d, the holder of %d has written", e.Resource, ErrStale, e.Token, e.Newest)
	}
}

// Is reports whether target is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Check applies the rule. The parameter newest is the largest token that the resource has seen.
// Check returns nil if the resource may accept token, otherwise a [*StaleError]. For a resource
// that has seen no token, newest is 0.
//
// On its own it protects nothing, for the check has to be one step with the write: see [Guard].
func Check(resource string, token, newest uint64) error {
	if token == 0 || token < newest {
		return &StaleError{Resource: resource, Token: token, Newest: newest}
	}
	return nil
}

// A Guard lets writes to resources through, unless their tokens are stale.
type Guard interface {
	// Write calls write if token is at least as large as every token that the Guard has seen for
	// resource, and not 0; otherwise it returns an error that matches ErrStale and calls nothing.
	//
	// From the check to the return of write no other Write for the resource is let through: one
	// with a larger token waits, for as long as its ctx allows. If the function write calls Write
	// for the same resource, this call waits until its ctx ends, and fails. If write fails, Write
	// returns its error as it is, and token counts as seen all the same. To read the resource and
	// then write it, do both within one Write.
	Write(ctx context.Context, resource string, token uint64, write func(context.Context) error) error
}
