package driver

import (
	"context"
	"time"
)

// Operator is a Driver that can show a lock, list the locks that are held, and end the hold of
// another process. The core looks for each method by itself. A method that the backend has no means
// for may be missing, or return ErrUnsupported.
type Operator interface {
	// Inspect looks at the lock called name, which includes the prefix, as Request.Name does. It
	// does not contend for the lock.
	//
	//  1. It changes nothing at the backend, makes nothing there, and wakes nobody.
	//  2. The State was true at one moment, as far as the backend can tell. A hold that has expired
	//     does not count. For a lock that was never held, Inspect returns the zero State, and no
	//     error.
	//  3. What is not known is left zero, never guessed.
	//  4. ctx bounds the call, and has a deadline. If the backend is unreachable, it returns the
	//     client library's error before the deadline.
	Inspect(ctx context.Context, name string) (State, error)

	// List returns a Pager for the held locks whose names begin with prefix. Names and prefix are
	// as in Request.Name: they include the Client's prefix. It makes no request.
	List(prefix string) Pager

	// ForceRelease ends a hold of the lock called name: the hold that the State in shown describes.
	// shown is what an Inspect has returned, perhaps long ago. Another Driver of this backend may
	// have made this Inspect. In shown, Held is true. If shown has a Holder, it has a Token, the
	// Holder's ID, or both.
	//
	//  1. It ends the hold that is there only if its Token and ID are those in shown. It compares
	//     and ends in one step. It does not compare what is zero. If the lock is shared by now,
	//     ForceRelease ends the Shares in shown. If shown has a Holder instead, because it is from
	//     before a Downgrade, ForceRelease ends the share that has the ID of this Holder.
	//  2. The lock is then free as after a Release: a waiter is woken, or has it, and the next token
	//     is larger.
	//  3. After that, Extend and Release of the former holder return ErrLost. If the reply to such
	//     a Release is lost, the repeated Release returns ErrLost, too. A request of the former
	//     holder that arrives late extends nothing. What such a request can still take ends within
	//     one TTL of its sending, as after a Release: see [Claim].
	//  4. It returns ErrNotHeld if nobody holds the lock, and ErrHeld, or a HeldError, if another hold
	//     is there than the one described. After any other error the outcome is unknown.
	//  5. ctx bounds the call, and has a deadline. If the backend is unreachable, it returns the
	//     client library's error before the deadline.
	ForceRelease(ctx context.Context, name string, shown State) error
}

// Pager returns the next page of a list each time that it is called. It is called by one goroutine
// at a time, and not again after the last page or an error.
//
//  1. It changes nothing at the backend, makes nothing there, and wakes nobody.
//  2. A call makes few requests, and none that keeps a server busy for long, however many locks
//     there are. So a page may be empty.
//  3. A lock that is held from the first call to the last is on a page. A lock that is taken or
//     released meanwhile may be on a page or on none. Any lock may be on two pages. A hold that had
//     expired when its page was made does not count as held.
//  4. ctx bounds the call, and has a deadline. If the backend is unreachable, it returns the client
//     library's error before the deadline.
type Pager func(ctx context.Context) (Page, error)

// Page is a part of a list.
type Page struct {
	Names []string // of locks that are held, in no order that counts

	// Unnamed counts locks that are held and are not in Names, because the backend keeps only
	// hashes of their names. Their names may begin with the prefix or not.
	Unnamed int

	Last bool // there are no more
}

// State is what the backend knew of a lock at one moment, for people who look, and for monitors. By
// the time it is read it may have changed: to act on it, hold the lock.
type State struct {
	// Held is true if somebody holds the lock. A release may hand the lock over to the first
	// waiter. Until this waiter has taken it, Held is false, and nobody else can take the lock.
	Held   bool
	Holder Participant // the zero Participant if nobody holds it

	// Shares are those who hold the lock together, if it is shared: Held is true then, and Holder
	// the zero Participant.
	Shares []Participant

	// Left is how long the hold lasts unless it is extended, by the backend's clock. (The holder
	// goes by its own clock.) Of several shares it is the longest time. It is 0 if nobody holds the
	// lock, or if the backend does not tell.
	Left time.Duration

	// Since is when the hold began, reckoned from the backend's clock. Of shares that are held
	// together, it is when the first one began. It is zero if nobody holds the lock, or if the
	// backend does not tell, as etcd and ZooKeeper do not.
	Since time.Time

	// Token is the fencing token of the holder, or else the last one that the backend remembers. It
	// is 0 if the backend knows none.
	Token uint64

	// Waiters are those who stand in the backend's queue, the next one first, without the holder.
	// One that has died stands there until the backend notices. Where waiters poll there is no
	// queue.
	Waiters []Participant
}

// Participant holds a lock, or waits for it.
type Participant struct {
	// ID is what the backend calls this attempt to hold. At the time, no other attempt has the same
	// ID. It is empty if the backend has none. IDs with the same text before a slash are of one
	// Driver.
	ID string

	// Metadata is the text of WithMetadata. It is also empty if the backend does not keep it.
	Metadata string
}
